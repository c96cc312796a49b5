// What libFuzzer calls (fuzz.sh). MEGALITH_FUZZ_TARGET names the target.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/targets.h"

static const megalith::fuzz::Target& chosen() {
  static const char* name = std::getenv("MEGALITH_FUZZ_TARGET");
  static const megalith::fuzz::Target& one = megalith::fuzz::target(name ? name : "");
  return one;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen().read({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// As libFuzzer would do it, but that an HDF5 file keeps its length: one of another is refused for that alone.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned) {
  if (chosen().name != "hdf5" || size == 0) return LLVMFuzzerMutate(data, size, most);
  const std::vector<uint8_t> before(data, data + size);
  const size_t mutated = LLVMFuzzerMutate(data, size, size);
  std::copy(before.begin() + static_cast<std::ptrdiff_t>(mutated), before.end(), data + mutated);
  return size;
}
