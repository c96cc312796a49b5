#include "kernels/stream/arena.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace megalith {

namespace {
constexpr int64_t page = 4096;
// Dry addresses start away from null so that a view of one is never taken for "no tensor".
constexpr uintptr_t dry_device = page, dry_host = uintptr_t{1} << 62;
// Returns an address range that no arena of another name reaches: names have 16 bits of a hash, and 16 TiB each.
uintptr_t dry_base(MemoryPlace place, const std::string& name) {
  uintptr_t hash = 0;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return (place == MemoryPlace::host ? dry_host : dry_device) + (hash % 65521 << 44);
}

device::Memory allocate(World world, MemoryPlace place, int64_t bytes, const std::string& name,
                        const DeviceAllocator& of_device) {
  if (world == World::cuda)
    return place == MemoryPlace::host ? device::allocate_pinned(bytes, name) : of_device(bytes, name);
  device::Memory memory(std::aligned_alloc(page, static_cast<size_t>(round_up(bytes, page))), {std::free});
  CHECK(memory != nullptr, "cannot allocate {} bytes of memory for {}; use a smaller microbatch or more ranks", bytes,
        name);
  return memory;
}
}  // namespace

bool in_dry_host_arena(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.raw()) >= dry_host; }

Arena::Arena(World world, std::string name, int64_t capacity, MemoryPlace place, const DeviceAllocator& of_device)
    : name_(std::move(name)), capacity_(world == World::dry ? std::numeric_limits<int64_t>::max() : capacity) {
  if (world == World::dry) {
    base_ = reinterpret_cast<char*>(dry_base(place, name_));
  } else if (capacity > 0) {
    memory_ = allocate(world, place, capacity, name_, of_device);
    base_ = static_cast<char*>(memory_.get());
  }
}

Tensor Arena::tensor(DType dtype, Shape shape) {
  const int64_t begin = used_;
  const int64_t end = begin + round_up(shape.numel() * size_of(dtype), alignment);
  CHECK(end <= capacity_, "arena {}: {} bytes wanted, {} of {} used; the dry run planned less", name_, end - begin,
        begin, capacity_);
  used_ = end;
  peak_ = std::max(peak_, used_);
  return {base_ + begin, dtype, shape};
}

}  // namespace megalith
