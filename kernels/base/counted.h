// A count with its noun, for what people read: "1 rank", "2 ranks". Every folder may include this file.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace megalith {

// Of nouns whose plural ends in s.
template <class Count>
std::string counted(Count count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == Count{1} ? "" : "s");
}

}  // namespace megalith
