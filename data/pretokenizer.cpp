#include "data/pretokenizer.h"

#include <utf8proc.h>

#include <array>

namespace megalith {

namespace {

constexpr char32_t num_code_points = 0x110000;

struct Range {
  char32_t first, last;
};

// The white space of Unicode (PropList.txt), complete since Unicode 6.3.
constexpr std::array white_space = {
    Range{0x9, 0xd},       Range{0x20, 0x20},     Range{0x85, 0x85},     Range{0xa0, 0xa0},     Range{0x1680, 0x1680},
    Range{0x2000, 0x200a}, Range{0x2028, 0x2029}, Range{0x202f, 0x202f}, Range{0x205f, 0x205f}, Range{0x3000, 0x3000}};

// Assigned by Unicode 15, 15.1 and 16; an older utf8proc does not know them, and tokens would depend on the machine.
constexpr std::array new_letters = {
    Range{0x1c89, 0x1c8a},   Range{0xa7cb, 0xa7cd},   Range{0xa7da, 0xa7dc},   Range{0x105c0, 0x105f3},
    Range{0x10d4a, 0x10d65}, Range{0x10d6f, 0x10d85}, Range{0x10ec2, 0x10ec4}, Range{0x1123f, 0x11240},
    Range{0x11380, 0x11389}, Range{0x1138b, 0x1138b}, Range{0x1138e, 0x1138e}, Range{0x11390, 0x113b5},
    Range{0x113b7, 0x113b7}, Range{0x113d1, 0x113d1}, Range{0x113d3, 0x113d3}, Range{0x11bc0, 0x11be0},
    Range{0x11f02, 0x11f02}, Range{0x11f04, 0x11f10}, Range{0x11f12, 0x11f33}, Range{0x1342f, 0x1342f},
    Range{0x13441, 0x13446}, Range{0x13460, 0x143fa}, Range{0x16100, 0x1611d}, Range{0x16d40, 0x16d6c},
    Range{0x18cff, 0x18cff}, Range{0x1b132, 0x1b132}, Range{0x1b155, 0x1b155}, Range{0x1df25, 0x1df2a},
    Range{0x1e030, 0x1e06d}, Range{0x1e4d0, 0x1e4eb}, Range{0x1e5d0, 0x1e5ed}, Range{0x1e5f0, 0x1e5f0},
    Range{0x2b739, 0x2b739}, Range{0x2ebf0, 0x2ee5d}, Range{0x31350, 0x323af}};
constexpr std::array new_numbers = {Range{0x10d40, 0x10d49}, Range{0x116d0, 0x116e3}, Range{0x11bf0, 0x11bf9},
                                    Range{0x11f50, 0x11f59}, Range{0x16130, 0x16139}, Range{0x16d70, 0x16d79},
                                    Range{0x1ccf0, 0x1ccf9}, Range{0x1d2c0, 0x1d2d3}, Range{0x1e4f0, 0x1e4f9},
                                    Range{0x1e5f1, 0x1e5fa}};

CharClass category_class(char32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CharClass::letter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return CharClass::number;
  return CharClass::other;
}

bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Returns the length of the contraction that the "'" at p begins; 0 if none.
size_t contraction(const uint8_t* p, const uint8_t* end) {
  const auto left = end - p;
  if (left < 2) return 0;
  if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd') return 2;
  if (left < 3) return 0;
  if ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l')) return 3;
  return 0;
}

}  // namespace

Pretokenizer::Pretokenizer() : classes_(num_code_points) {
  for (char32_t c = 0; c < num_code_points; c++) classes_[c] = category_class(c);
  const auto assign = [&](const auto& ranges, CharClass kind) {
    for (const Range& range : ranges)
      for (char32_t c = range.first; c <= range.last; c++) classes_[c] = kind;
  };
  assign(new_letters, CharClass::letter);
  assign(new_numbers, CharClass::number);
  assign(white_space, CharClass::space);
}

// Valid sequences are those of the Unicode Standard, table 3-7.
inline Pretokenizer::Char Pretokenizer::char_at(const uint8_t* p, const uint8_t* end) const {
  const uint8_t lead = *p;
  if (lead < 0x80) return {classes_[lead], 1};
  const auto left = end - p;
  if (lead >= 0xc2 && lead <= 0xdf) {
    if (left >= 2 && is_continuation(p[1])) return {classes_[(lead & 0x1fu) << 6 | (p[1] & 0x3fu)], 2};
  } else if ((lead & 0xf0) == 0xe0) {
    const uint8_t lowest = lead == 0xe0 ? 0xa0 : 0x80, highest = lead == 0xed ? 0x9f : 0xbf;
    if (left >= 3 && p[1] >= lowest && p[1] <= highest && is_continuation(p[2]))
      return {classes_[(lead & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)], 3};
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    const uint8_t lowest = lead == 0xf0 ? 0x90 : 0x80, highest = lead == 0xf4 ? 0x8f : 0xbf;
    if (left >= 4 && p[1] >= lowest && p[1] <= highest && is_continuation(p[2]) && is_continuation(p[3]))
      return {classes_[(lead & 0x7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu)], 4};
  }
  return {CharClass::other, 1};
}

// Returns the end of the run of one class that begins at p.
inline const uint8_t* Pretokenizer::skip(CharClass kind, const uint8_t* p, const uint8_t* end) const {
  while (p < end) {
    const Char c = char_at(p, end);
    if (c.kind != kind) break;
    p += c.bytes;
  }
  return p;
}

// \s+(?!\S)|\s+ : a run of more than one space leaves its last character to what follows, if anything does.
inline const uint8_t* Pretokenizer::space_pretoken(const uint8_t* begin, const uint8_t* end) const {
  const uint8_t *p = begin, *last = begin;
  while (p < end) {
    const Char c = char_at(p, end);
    if (c.kind != CharClass::space) return last > begin ? last : p;
    last = p;
    p += c.bytes;
  }
  return end;
}

size_t Pretokenizer::first_pretoken(std::string_view text) const {
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* end = begin + text.size();
  if (*begin == '\'')
    if (const size_t bytes = contraction(begin, end)) return bytes;
  const uint8_t* p = begin + (*begin == ' ');
  if (p == end) return 1;
  const Char first = char_at(p, end);
  if (first.kind == CharClass::space) return static_cast<size_t>(space_pretoken(begin, end) - begin);
  return static_cast<size_t>(skip(first.kind, p + first.bytes, end) - begin);
}

CharClass Pretokenizer::class_before(const uint8_t* begin, const uint8_t* p) const {
  const uint8_t* lead = p - 1;
  while (lead > begin && p - lead < 4 && is_continuation(*lead)) lead--;
  const Char c = char_at(lead, p);
  return lead + c.bytes == p ? c.kind : CharClass::other;  // otherwise the byte before p is a stray one
}

// No pre-token continues from a non-space into another class, except from an apostrophe (contractions). One that ends
// at such a place also ends there if the text does: only runs of space look ahead.
size_t Pretokenizer::last_cut(std::string_view text) const {
  constexpr size_t longest_char = 4;  // so that the character after the cut is whole
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* end = begin + text.size();
  for (size_t cut = text.size() < longest_char ? 0 : text.size() - longest_char; cut > 0; cut--) {
    const uint8_t* p = begin + cut;
    if (is_continuation(*p) || p[-1] == '\'') continue;
    const CharClass before = class_before(begin, p);
    if (before != CharClass::space && before != char_at(p, end).kind) return cut;
  }
  return 0;
}

}  // namespace megalith
