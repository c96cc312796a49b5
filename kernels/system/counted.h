// Formats a count with its noun: "1 rank", "2 ranks". Every folder may include this file.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace megalith {

// `plural` is for nouns that do not just take an s.
template <class Count>
std::string counted(Count count, std::string_view noun, std::string_view plural = {}) {
  if (count == Count{1}) return fmt::format("{} {}", count, noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace megalith
