// Characters of UTF-8 text and their Unicode categories: those of Unicode 16, whichever utf8proc is installed.
//
// Text need not be UTF-8: a byte that is not part of a valid sequence (The Unicode Standard, table 3-7; overlong forms
// and surrogates are not valid) is one character, stray_byte, without a category.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megalith {

constexpr char32_t num_code_points = 0x110000, stray_byte = num_code_points;

struct Character {
  char32_t code_point;
  uint8_t bytes;
};

inline bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

inline const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// Returns the character at p, which is before end.
inline Character character_at(const uint8_t* p, const uint8_t* end) {
  const uint8_t lead = *p;
  if (lead < 0x80) return {lead, 1};
  const auto left = end - p;
  if (lead >= 0xc2 && lead <= 0xdf) {
    if (left >= 2 && is_continuation(p[1])) return {(lead & 0x1fu) << 6 | (p[1] & 0x3fu), 2};
  } else if ((lead & 0xf0) == 0xe0) {
    const uint8_t lowest = lead == 0xe0 ? 0xa0 : 0x80, highest = lead == 0xed ? 0x9f : 0xbf;
    if (left >= 3 && p[1] >= lowest && p[1] <= highest && is_continuation(p[2]))
      return {(lead & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu), 3};
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    const uint8_t lowest = lead == 0xf0 ? 0x90 : 0x80, highest = lead == 0xf4 ? 0x8f : 0xbf;
    if (left >= 4 && p[1] >= lowest && p[1] <= highest && is_continuation(p[2]) && is_continuation(p[3]))
      return {(lead & 0x7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu), 4};
  }
  return {stray_byte, 1};
}

// Returns the character that ends at p, which is after begin.
inline Character character_before(const uint8_t* begin, const uint8_t* p) {
  const uint8_t* lead = p - 1;
  while (lead > begin && p - lead < 4 && is_continuation(*lead)) lead--;
  const Character c = character_at(lead, p);
  return lead + c.bytes == p ? c : Character{stray_byte, 1};
}

// A range of code points that includes both ends.
struct CodePoints {
  char32_t first, last;
};

// A set of characters, which may include stray_byte, as ascending ranges that do not touch.
class CharacterSet {
 public:
  CharacterSet() = default;
  explicit CharacterSet(std::vector<CodePoints> ranges);  // ranges in any order

  // Returns the characters of a category, such as "L", "Lu" or "N"; an empty set for an unknown name.
  static CharacterSet of_category(std::string_view name);
  static const CharacterSet& white_space();  // Unicode's property, without U+001C to U+001F
  // Alphabetic characters, marks, decimal digits, connectors and joiners (Unicode Technical Standard 18, annex C).
  static const CharacterSet& word();

  void add(const CharacterSet& other);
  CharacterSet complement() const;
  bool contains(char32_t code_point) const;
  const std::vector<CodePoints>& ranges() const { return ranges_; }

 private:
  std::vector<CodePoints> ranges_;
};

// Returns the text without the surrounding blanks that Python's str.strip removes.
std::string_view stripped(std::string_view text);

// Returns the category of a code point, as a number of utf8proc.
uint8_t category_of(char32_t code_point);
bool is_letter(uint8_t category);
bool is_number(uint8_t category);

}  // namespace megalith
