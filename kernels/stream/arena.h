// An Arena is a bump allocator: one backing allocation, handed out front to back and given back in reverse by scopes.
// Each class of memory (parameters, saved activations, scratch, ...) has an arena, so that its peak is the number that
// the plan prints for that class.
//
// In the cuda world an arena is memory of the GPU or pinned memory of the host; in the cpu world both are memory of the
// node. In the dry world it is an address range without memory or limit, chosen by its place and name, and its peak is
// the size that the real arena of the same run needs. Tensors are views and are valid until the end of their scope.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "kernels/stream/device.h"
#include "kernels/stream/stream.h"
#include "kernels/system/units.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

enum class MemoryPlace : uint8_t { device, host };
constexpr std::array<MemoryPlace, 2> all_memory_places{MemoryPlace::device, MemoryPlace::host};

// Allocates `bytes` bytes of the selected GPU; the text is for messages, as in device.h.
using DeviceAllocator = std::function<device::Memory(int64_t bytes, const std::string& what)>;

class Arena {
 public:
  static constexpr int64_t alignment = 256;  // bytes on which every tensor starts

  // Allocates `capacity` bytes of the selected GPU or of host memory. The dry world ignores `capacity`.
  Arena(World world, std::string name, int64_t capacity, MemoryPlace place = MemoryPlace::device,
        const DeviceAllocator& of_device = device::allocate);

  // Returns uninitialised memory until the enclosing scope ends. Error when the capacity is exceeded.
  Tensor tensor(DType dtype, Shape shape);

  // Gives back in its destructor all memory handed out since its constructor.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    int64_t mark_;
  };
  [[nodiscard]] Scope scope() { return Scope(*this); }

  const std::string& name() const { return name_; }
  // Returns the backing allocation, or null in the dry world.
  void* memory() const { return memory_.get(); }
  int64_t capacity() const { return capacity_; }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }

 private:
  std::string name_;
  int64_t capacity_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  device::Memory memory_;
  char* base_ = nullptr;
};

// Returns whether the tensor is in an arena of the host. Dry world only, where addresses show it.
bool in_dry_host_arena(const Tensor& t);

}  // namespace megalith
