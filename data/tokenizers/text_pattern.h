// Regular expressions with which a tokenizer.json cuts or replaces text, in the syntax and with the meaning of
// Oniguruma, which `tokenizers` uses. A pattern is parsed (pattern_parser.h) and compiled (pattern_compiler.cpp) to a
// small program over tables of characters, which backtracks.
//
// Oniguruma itself was tried and not taken. Debian's knows Unicode 14 or 15.1, so that tokens would depend on the
// machine (9,394 characters of Unicode are cut differently). It does not report whether more text could change a match,
// which cutting a long text needs. It reads invalid UTF-8 as a part of the next character. And it took 3.6 times as
// long.
//
// Supported: characters, escapes, ., classes (nested and negated, ranges, \s \d \w \p{category} and their negations),
// groups, (?i:), alternatives, greedy, lazy and possessive quantifiers, look-ahead, look-behind of a fixed length, \A
// and \z. Refused by name: back references, ^ and $, \b, POSIX classes, scripts, && in classes.
//
// A pattern is immutable; any number of threads may use it, each with its own Scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/characters.h"

namespace megalith {

class TextPattern {
 public:
  // Errors: unsupported syntax; a group that repeats and may be empty. `where` begins the message.
  TextPattern(std::string_view pattern, const std::string& where);
  // Returns a pattern that matches exactly this text.
  static TextPattern of_text(std::string_view text);

  struct Match {
    size_t begin, end;
  };
  // The memory of a search.
  struct Scratch {
    struct Choice {
      int node;
      const uint8_t *at, *lowest;  // lowest: null, or a run that ends at `at` may end earlier, down to there
    };
    std::vector<Choice> choices;
    int64_t tries = 0;     // alternatives tried since a search began
    bool saw_end = false;  // set by a search whose result more text could change; never cleared here
  };
  // Finds the first match that begins at `from` or later. It may be empty. Returns whether there is one. Error: the
  // search tries more alternatives than any normal text needs; a stranger's pattern may backtrack without end.
  bool find(std::string_view text, size_t from, Match& match, Scratch& scratch) const;

  // Returns the first place at or after `from` where more text could change whether a match begins.
  size_t undecided_from(std::string_view text, size_t from, Scratch& scratch) const;

  // Returns whether a match depends on the text before it.
  bool looks_back() const { return looks_back_; }

 private:
  friend class PatternCompiler;
  enum class Kind : uint8_t { literal, one_of, run, choice, look_ahead, look_behind, atomic, begins, ends, accept };
  struct Node {
    Kind kind = Kind::accept;
    bool is_negated = false;  // for a look-around
    bool gives_back = true;   // a run may have to end earlier
    int next = -1;
    int other = -1;  // of a choice: tried after next; of a look-around or an atomic group: its content
    char32_t literal = 0;
    uint64_t set = 0;              // one bit
    uint32_t least = 0, most = 0;  // repetitions of a run; characters of a look-behind
  };
  struct Way {  // an alternative of the whole pattern
    int node;
    bool may_begin_with_any;
    uint64_t sets;                   // a match begins with a character of one of these sets
    std::vector<char32_t> literals;  // or with one of these characters
  };
  static constexpr int page_bits = 8;

  TextPattern() = default;
  uint64_t sets_of(char32_t code_point) const {
    return pages_[static_cast<size_t>(page_of_[code_point >> page_bits]) << page_bits |
                  (code_point & ((1u << page_bits) - 1))];
  }
  const uint8_t* match(int node, const uint8_t* begin, const uint8_t* p, const uint8_t* end, Scratch& scratch) const;
  const uint8_t* match_any(const uint8_t* begin, const uint8_t* p, const uint8_t* end, Scratch& scratch) const;

  std::string where_;  // begins messages
  std::string text_;   // of_text: the text to find
  std::vector<Node> nodes_;
  std::vector<Way> ways_;                       // the pattern's order
  std::vector<std::vector<int>> ways_by_byte_;  // by a first byte below 0x80
  std::vector<uint8_t> begins_;                 // by a first byte: whether a match may begin with it
  bool may_be_empty_ = false;
  bool looks_back_ = false;
  std::vector<uint16_t> page_of_;
  std::vector<uint64_t> pages_;  // the sets that contain each character
};

}  // namespace megalith
