// What libFuzzer calls (fuzz.sh). MEGALITH_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith::fuzz;
  static const Target& chosen = [&]() -> const Target& {
    const char* name = std::getenv("MEGALITH_FUZZ_TARGET");
    return target(name ? name : "");
  }();
  chosen.read({reinterpret_cast<const char*>(data), size});
  return 0;
}
