#include "data/tokenizers/pretokenizer.h"

#include "data/tokenizers/characters.h"

namespace megalith {

namespace {

// Returns the length of the contraction that the "'" at p begins, or 0.
size_t contraction(const uint8_t* p, const uint8_t* end) {
  const auto left = end - p;
  if (left < 2) return 0;
  if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd') return 2;
  if (left < 3) return 0;
  if ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l')) return 3;
  return 0;
}

}  // namespace

// In tiktoken's spelling, spaces up to the end of a text and a single space have the same effect.
bool is_gpt2_pattern(std::string_view pattern) {
  return pattern == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" ||
         pattern == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" ||
         pattern == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
}

Pretokenizer::Pretokenizer() : classes_(num_code_points + 1) {
  for (char32_t c = 0; c < num_code_points; c++) {
    const uint8_t category = category_of(c);
    if (is_letter(category)) classes_[c] = CharClass::letter;
    if (is_number(category)) classes_[c] = CharClass::number;
  }
  for (const CodePoints& range : CharacterSet::white_space().ranges())
    for (char32_t c = range.first; c <= range.last; c++) classes_[c] = CharClass::space;
}

inline Pretokenizer::Char Pretokenizer::char_at(const uint8_t* p, const uint8_t* end) const {
  if (*p < 0x80) return {classes_[*p], 1};
  const Character c = character_at(p, end);
  return {classes_[c.code_point], c.bytes};
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

// \s+(?!\S)|\s+ : a run of more than one space leaves its last character to the text after it, if there is any.
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
  return classes_[character_before(begin, p).code_point];
}

// No pre-token continues from a non-space into another class, except from an apostrophe (contractions). A pre-token
// that ends at such a place would also end there if the text did: only runs of space look ahead.
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
