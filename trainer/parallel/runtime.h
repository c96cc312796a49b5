// What a rank computes with: a stream, memory by class, and its place in the mesh.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "kernels/base/arena.h"
#include "kernels/base/stream.h"
#include "kernels/device_queue.h"
#include "trainer/communication/mesh.h"

namespace megalith {

// Classes of memory, each with one arena and one line in the plan.
enum class MemoryClass : uint8_t {
  parameters,     // master weights and the copy that computes
  optimizer,      // moments
  gradients,      // what accumulates over microbatches
  saved,          // activations kept from forward for backward, tokens and targets
  scratch,        // alive within one layer
  communication,  // gathered weights, full gradients before they are scattered
};
constexpr int num_memory_classes = 6;
constexpr std::array<MemoryClass, num_memory_classes> all_memory_classes{
    MemoryClass::parameters, MemoryClass::optimizer, MemoryClass::gradients,
    MemoryClass::saved,      MemoryClass::scratch,   MemoryClass::communication};
const char* name_of(MemoryClass memory_class);

using MemorySizes = std::array<int64_t, num_memory_classes>;  // bytes, indexed by MemoryClass
int64_t total(const MemorySizes& sizes);

class Memory {
 public:
  // In the dry world `sizes` is ignored.
  Memory(World world, const MemorySizes& sizes);
  Arena& operator[](MemoryClass memory_class) { return arenas_[static_cast<size_t>(memory_class)]; }
  MemorySizes peaks() const;

 private:
  std::array<Arena, num_memory_classes> arenas_;
};

struct Runtime {
  std::unique_ptr<DeviceQueue> queue;  // in the cuda world
  Stream stream;
  Memory memory;
  Mesh mesh;

  // `made`: the queue, where it was made before.
  Runtime(World world, const MemorySizes& sizes, Mesh m, std::unique_ptr<DeviceQueue> made = nullptr)
      : queue(world == World::cuda && !made ? std::make_unique<DeviceQueue>() : std::move(made)),
        stream(world, queue ? queue->queue() : cuda::Queue{}),
        memory(world, sizes),
        mesh(std::move(m)) {}
};

}  // namespace megalith
