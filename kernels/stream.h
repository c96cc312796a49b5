// A Stream is an order of work on one backend. All work of a step goes through launch(), which states its cost once,
// beside the call; planner, profiler, MFU and bench quote that same number.
//
//   cpu: launch() runs the op now, on OpenMP's threads.
//   dry: launch() runs nothing; it only adds the cost to the log.
//
// The log sums per op name, in order of first use. Names are string literals and are compared as pointers. The trace
// keeps every single event, when asked to.
// A stream is not thread-safe and must outlive everything launched on it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "kernels/check.h"
#include "kernels/trace.h"

namespace megalith {

namespace cpu {
class Gemm;  // gemm_cpu.h: GEMM primitives of the CPU library, cached per shape
}

enum class World { cpu, dry };

struct Cost {
  double flops = 0;  // multiplications and additions
  double bytes = 0;  // memory traffic of an ideal op: every argument read or written once
};

struct OpRecord {
  const char* name;
  int64_t launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;  // 0 in the dry world
};

class Stream {
 public:
  explicit Stream(World world);
  ~Stream();
  Stream(Stream&&) noexcept;

  World world() const { return world_; }

  template <class Cpu>
  void launch(const char* name, Cost cost, Cpu&& cpu) {
    OpRecord& record = record_of(name);
    record.launches++;
    record.flops += cost.flops;
    record.bytes += cost.bytes;
    trace_->op(name);
    if (world_ == World::dry) return;
    const auto start = std::chrono::steady_clock::now();
    cpu();
    record.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Work launched so far, summed per op.
  const std::vector<OpRecord>& log() const { return log_; }
  Cost total() const;
  void clear_log() { log_.clear(); }

  // In order, with the transfers that were given this stream; communicators write into it.
  Trace& trace() { return *trace_; }

  // Only inside a cpu closure: the GEMM library's state.
  cpu::Gemm& gemm() { return *gemm_; }

 private:
  OpRecord& record_of(const char* name);

  World world_;
  std::vector<OpRecord> log_;
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();  // transfers under way point to it, should the stream move
  std::unique_ptr<cpu::Gemm> gemm_;
};

}  // namespace megalith
