// libFuzzer calls these (fuzz.sh). MEGALITH_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdlib>

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
