#include "trainer/parallel/runtime.h"

namespace megalith {

const char* name_of(MemoryClass memory_class) {
  constexpr const char* names[] = {"parameters", "optimizer",     "gradients", "saved",
                                   "scratch",    "communication", "checkpoint"};
  return names[static_cast<size_t>(memory_class)];
}

std::span<const MemoryClass> classes_on(MemoryPlace place) {
  const std::span<const MemoryClass> all(all_memory_classes);
  return place == MemoryPlace::host ? all : all.first(all.size() - 1);
}

int64_t MemorySizes::total(MemoryPlace place) const {
  int64_t sum = 0;
  for (MemoryClass c : all_memory_classes) sum += at(c, place);
  return sum;
}

MemorySizes& MemorySizes::operator+=(const MemorySizes& other) {
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] += other.bytes[i];
  return *this;
}

Memory::Memory(World world, const MemorySizes& sizes, const DeviceAllocator& of_device) {
  for (MemoryPlace place : all_memory_places)
    for (MemoryClass c : all_memory_classes)
      arenas_.emplace_back(world, fmt::format("{}{}", name_of(c), place == MemoryPlace::host ? " on the host" : ""),
                           sizes.at(c, place), place, of_device);
}

MemorySizes Memory::peaks() const {
  MemorySizes peaks;
  for (size_t i = 0; i < arenas_.size(); i++) peaks.bytes[i] = arenas_[i].peak();
  return peaks;
}

}  // namespace megalith
