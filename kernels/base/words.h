// Numbers in sentences.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace megalith {

// "1 step", "2 steps"; "1 copy", "2 copies" if the latter is given.
inline std::string counted(int64_t number, std::string_view one, std::string_view many = "") {
  return number == 1 || !many.empty() ? fmt::format("{} {}", number, number == 1 ? one : many)
                                      : fmt::format("{} {}s", number, one);
}

}  // namespace megalith
