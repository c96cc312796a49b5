// An Arena is bump memory: one backing allocation, handed out front to back and given back in reverse by scopes.
// Where a class of memory is needed (parameters, saved activations, scratch, ...) there is one arena for it, so that
// its peak is the number the plan prints for that class.
//
// An arena has a place. In the cuda world the device is the GPU, and the host's memory is pinned; in the cpu world both
// places are memory of the node.
//
// In the dry world an arena is an address range that nobody touches, another one for each place: it has no limit, and
// its peak is the size that the real arena of the same run needs. Tensors are views and die with their scope.
#pragma once

#include <array>
#include <string>

#include "kernels/base/device.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/system/units.h"

namespace megalith {

enum class Place : uint8_t { device, host };
constexpr std::array<Place, 2> all_places{Place::device, Place::host};

class Arena {
 public:
  static constexpr int64_t alignment = 256;  // bytes: every tensor starts on such a boundary

  // Dry world: no memory, no limit; `capacity` is ignored. Else: one allocation of `capacity` bytes, in the cuda world
  // of or for the GPU that is selected.
  Arena(World world, std::string name, int64_t capacity, Place place = Place::device);

  // Uninitialised memory until the enclosing scope ends. Error when the capacity is exceeded.
  Tensor tensor(DType dtype, Shape shape);

  // Gives back, when it ends, everything handed out since it began.
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

// Whether the tensor is of an arena on the host. For the dry world only, where addresses show it.
bool in_dry_host_arena(const Tensor& t);

}  // namespace megalith
