#include "kernels/base/arena.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/base/device.h"

namespace megalith {

namespace {
int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr int64_t page = 4096;
}  // namespace

void Arena::Free::operator()(void* p) const {
  if (world == World::cuda)
    device::Release{}(p);
  else
    std::free(p);
}

Arena::Arena(World world, std::string name, int64_t capacity)
    : world_(world), name_(std::move(name)), capacity_(capacity) {
  if (world_ == World::dry || capacity_ == 0) return;
  if (world_ == World::cuda) {
    memory_ = std::unique_ptr<void, Free>(device::allocate(capacity_, name_).release(), Free{world_});
    return;
  }
  memory_.reset(std::aligned_alloc(page, static_cast<size_t>(round_up(capacity_, page))));
  CHECK(memory_ != nullptr, "cannot allocate {} bytes of memory for {}; use a smaller microbatch or more ranks",
        capacity_, name_);
}

Tensor Arena::tensor(DType dtype, Shape shape) {
  const int64_t begin = used_;
  const int64_t end = begin + round_up(shape.numel() * size_of(dtype), alignment);
  CHECK(world_ == World::dry || end <= capacity_, "arena {}: {} bytes wanted, {} of {} used; the dry run planned less",
        name_, end - begin, begin, capacity_);
  used_ = end;
  peak_ = std::max(peak_, used_);
  // Dry addresses start away from null so that a view of one is never taken for "no tensor".
  char* base = world_ == World::dry ? reinterpret_cast<char*>(page) : static_cast<char*>(memory_.get());
  return {base + begin, dtype, shape};
}

}  // namespace megalith
