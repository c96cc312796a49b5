#include "trainer/parallel/runtime.h"

#include <numeric>

namespace megalith {

const char* name_of(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::parameters: return "parameters";
    case MemoryClass::optimizer: return "optimizer";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::saved: return "saved";
    case MemoryClass::scratch: return "scratch";
    default: return "communication";
  }
}

int64_t total(const MemorySizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

namespace {
template <size_t... I>
std::array<Arena, num_memory_classes> make_arenas(World world, const MemorySizes& sizes, std::index_sequence<I...>) {
  return {Arena(world, name_of(all_memory_classes[I]), sizes[I])...};
}
}  // namespace

Memory::Memory(World world, const MemorySizes& sizes)
    : arenas_(make_arenas(world, sizes, std::make_index_sequence<num_memory_classes>())) {}

MemorySizes Memory::peaks() const {
  MemorySizes peaks{};
  for (size_t i = 0; i < peaks.size(); i++) peaks[i] = arenas_[i].peak();
  return peaks;
}

}  // namespace megalith
