// A Runtime has a rank's stream, memory by class, and position in the mesh.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"
#include "trainer/communication/mesh.h"

namespace megalith {

// Classes of memory. Each has one arena per place and one line in the plan.
enum class MemoryClass : uint8_t {
  parameters,     // master weights and the working copy
  optimizer,      // moments
  gradients,      // gradients that accumulate over microbatches
  saved,          // activations kept from forward for backward, tokens and targets
  scratch,        // alive within one layer
  communication,  // gathered weights, full gradients before they are scattered
  checkpoint,     // on the host only: a copy of weights and moments for an asynchronous save
};
constexpr int num_memory_classes = 7;
constexpr std::array<MemoryClass, num_memory_classes> all_memory_classes{
    MemoryClass::parameters, MemoryClass::optimizer,     MemoryClass::gradients, MemoryClass::saved,
    MemoryClass::scratch,    MemoryClass::communication, MemoryClass::checkpoint};
const char* name_of(MemoryClass memory_class);
// Returns the classes that can have memory in a place.
std::span<const MemoryClass> classes_on(MemoryPlace place);

// Bytes by class of memory and place.
struct MemorySizes {
  static constexpr size_t index(MemoryClass c, MemoryPlace place) {
    return static_cast<size_t>(place) * num_memory_classes + static_cast<size_t>(c);
  }
  std::array<int64_t, num_memory_classes * all_memory_places.size()> bytes{};

  int64_t at(MemoryClass c, MemoryPlace place) const { return bytes[index(c, place)]; }
  int64_t& at(MemoryClass c, MemoryPlace place) { return bytes[index(c, place)]; }
  int64_t total(MemoryPlace place) const;  // the two places are never added together
  MemorySizes& operator+=(const MemorySizes& other);
  bool operator==(const MemorySizes&) const = default;
};

class Memory {
 public:
  // In the dry world `sizes` is ignored.
  Memory(World world, const MemorySizes& sizes, const DeviceAllocator& of_device = device::allocate);
  Arena& at(MemoryClass c, MemoryPlace place) { return arenas_[MemorySizes::index(c, place)]; }
  Arena& operator[](MemoryClass c) { return at(c, MemoryPlace::device); }
  MemorySizes peaks() const;

 private:
  std::vector<Arena> arenas_;  // by MemorySizes::index
};

struct Runtime {
  std::unique_ptr<DeviceQueue> queue;  // cuda world only
  Stream stream;
  Memory memory;
  Mesh mesh;

  // `made`: a queue that exists already, or null.
  Runtime(World world, const MemorySizes& sizes, Mesh m, std::unique_ptr<DeviceQueue> made = nullptr,
          const DeviceAllocator& of_device = device::allocate)
      : queue(world == World::cuda && !made ? std::make_unique<DeviceQueue>() : std::move(made)),
        stream(world, queue ? queue->queue() : cuda::Queue{}),
        memory(world, sizes, of_device),
        mesh(std::move(m)) {}
  // In the dry world, for a GPU.
  Runtime(const cuda::Chip& chip, Mesh m)
      : stream(World::dry, {.chip = chip}), memory(World::dry, {}), mesh(std::move(m)) {}
};

}  // namespace megalith
