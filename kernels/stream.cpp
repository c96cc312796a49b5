#include "kernels/stream.h"

#include "kernels/gemm_cpu.h"

namespace megalith {

Stream::Stream(World world, cuda::Queue queue) : world_(world), queue_(queue) {
  CHECK(has_cuda || world_ != World::cuda, "this build has no CUDA; use run.device = cpu, or the preset cuda");
  if (world_ == World::cpu) gemm_ = std::make_unique<cpu::Gemm>();
}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;

OpRecord& Stream::record_of(const char* name) {
  for (OpRecord& record : log_)
    if (record.name == name) return record;
  return log_.emplace_back(OpRecord{.name = name});
}

Cost Stream::total() const {
  Cost sum;
  for (const OpRecord& record : log_) {
    sum.flops += record.flops;
    sum.bytes += record.bytes;
  }
  return sum;
}

}  // namespace megalith
