#include "data/whole_characters.h"

#include <algorithm>
#include <utility>

#include "data/characters.h"

namespace megalith {

std::string_view whole_characters(std::string_view text) {
  constexpr size_t longest = 4;  // bytes of a character
  for (size_t back = 1; back <= std::min(longest, text.size()); back++) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (is_continuation(byte)) continue;
    const size_t needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (needed > back) text.remove_suffix(back);
    break;
  }
  return text;
}

std::string WholeCharacters::add(std::string_view piece) {
  held_ += piece;
  std::string shown(whole_characters(held_));
  held_.erase(0, shown.size());
  return shown;
}

std::string WholeCharacters::rest() { return std::exchange(held_, ""); }

}  // namespace megalith
