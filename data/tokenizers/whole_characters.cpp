#include "data/tokenizers/whole_characters.h"

#include <algorithm>
#include <utility>

#include "data/tokenizers/characters.h"

namespace megalith {

namespace {

size_t length_by(uint8_t lead) {
  return lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 1;
}

// Returns how many bytes at p, where no character begins, one U+FFFD replaces: as many as begin a character that is cut
// short (The Unicode Standard, section 3.9, "substitution of maximal subparts").
size_t subpart(const uint8_t* p, const uint8_t* end) {
  const uint8_t lead = *p;
  const size_t length = length_by(lead);
  const uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  size_t n = 1;
  for (; n < length && p + n < end; n++)
    if (n == 1 ? p[n] < lowest || p[n] > highest : !is_continuation(p[n])) break;
  return n;
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  const uint8_t *p = bytes_of(bytes), *end = p + bytes.size();
  while (p < end) {
    const Character c = character_at(p, end);
    if (c.code_point == stray_byte) {
      text += "\xef\xbf\xbd";
      p += subpart(p, end);
    } else {
      text.append(reinterpret_cast<const char*>(p), c.bytes);
      p += c.bytes;
    }
  }
  return text;
}

std::string_view whole_characters(std::string_view text) {
  constexpr size_t longest = 4;  // bytes of a character
  const uint8_t* end = bytes_of(text) + text.size();
  for (size_t back = 1; back <= std::min(longest, text.size()); back++) {
    const uint8_t* p = end - back;
    if (is_continuation(*p)) continue;
    if (length_by(*p) > back && subpart(p, end) == back) text.remove_suffix(back);
    break;
  }
  return text;
}

std::string WholeCharacters::add(std::string_view piece) {
  held_ += piece;
  const std::string_view whole = whole_characters(held_);
  const size_t size = whole.size();
  std::string shown = valid_utf8(whole);
  held_.erase(0, size);
  return shown;
}

std::string WholeCharacters::rest() { return valid_utf8(std::exchange(held_, "")); }

}  // namespace megalith
