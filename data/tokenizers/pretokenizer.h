// Splits text into pre-tokens, within which GPT-2's BPE merges. A hand-written scanner of this pattern, in which the
// first alternative that matches wins:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// \p{L} and \p{N} are the letters and numbers of Unicode 16, \s is its White_Space property (so U+0085 and U+00A0 are
// in, U+001C..U+001F are not). Text need not be UTF-8: a byte that is not part of a valid sequence (overlong forms and
// surrogates are not valid) is one character that is neither letter, number nor space.
//
// Immutable; any number of threads may use it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megalith {

// Returns whether a pattern of a tokenizer.json is the one above, in this spelling or in tiktoken's. Any other spelling
// runs as a pattern (text_pattern.h), which finds the same pre-tokens more slowly.
bool is_gpt2_pattern(std::string_view pattern);

enum class CharClass : uint8_t { other, letter, number, space };

class Pretokenizer {
 public:
  Pretokenizer();  // tabulates all code points, a few milliseconds

  // Returns the length of the first pre-token of a text, which must not be empty.
  size_t first_pretoken(std::string_view text) const;
  // Calls take(std::string_view) with each pre-token of a text.
  template <class Take>
  void each_pretoken(std::string_view text, Take&& take) const {
    for (size_t length; !text.empty(); text.remove_prefix(length)) {
      length = first_pretoken(text);
      take(text.substr(0, length));
    }
  }

  // See Tokenizer::last_cut.
  size_t last_cut(std::string_view text) const;

  CharClass class_of(char32_t code_point) const { return classes_[code_point]; }

 private:
  struct Char {
    CharClass kind;
    uint8_t bytes;
  };

  Char char_at(const uint8_t* p, const uint8_t* end) const;
  const uint8_t* skip(CharClass kind, const uint8_t* p, const uint8_t* end) const;
  const uint8_t* space_pretoken(const uint8_t* begin, const uint8_t* end) const;
  CharClass class_before(const uint8_t* begin, const uint8_t* p) const;

  std::vector<CharClass> classes_;  // by code point, and for stray_byte
};

}  // namespace megalith
