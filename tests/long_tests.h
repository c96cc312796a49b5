// Whether MEGALITH_LONG_TESTS=1 asks for the long loops (tests/nightly.sh). Otherwise a test takes a part of what it
// goes through, spread over all of it.
#pragma once

#include <cstdlib>
#include <string_view>

namespace megalith {

inline bool long_tests() {
  const char* wish = std::getenv("MEGALITH_LONG_TESTS");
  return wish && std::string_view(wish) == "1";
}

}  // namespace megalith
