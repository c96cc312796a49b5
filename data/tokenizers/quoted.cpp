#include "data/tokenizers/quoted.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>

namespace megalith {

namespace {

// Returns the length of the character that begins a text, or 0 if it begins with an invalid byte.
size_t length_of_character(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(text.size(), 4); length++)
    if (simdjson::validate_utf8(text.data(), length)) return length;
  return 0;
}

}  // namespace

std::string quoted_bytes(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const size_t length = length_of_character(text);
    const char c = text[0];
    if (c == '\n')
      result += "\\n";
    else if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (length == 0 || static_cast<uint8_t>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result + "\"";
}

}  // namespace megalith
