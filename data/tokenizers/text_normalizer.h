// The normalizer of a tokenizer.json: what changes a text, or each piece of it between added tokens, before it is cut.
// Inside data/ only. Known: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, and sequences of them.
//
// Bytes that are not UTF-8 stay as they are. Immutable; any number of threads may use it, each with its own Scratch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/text_pattern.h"

namespace megalith {

class TextNormalizer {
 public:
  // Error: a type that is not known, by key and value. `path` begins the message.
  TextNormalizer(const nlohmann::json& normalizer, const std::string& path);

  // A changed stretch of a text, and what it became.
  struct Change {
    size_t begin, end, new_begin, new_end;
  };
  struct Scratch {
    std::string text, other;
    TextPattern::Scratch pattern;
  };
  // Returns the text normalized, valid until the next call with this scratch and as long as the text. `goes_on`: the
  // text goes on from a cut, so that nothing is put before it. `changes`, unless null, gets what changed, if the
  // normalizer is only_composes(), in order.
  std::string_view apply(std::string_view text, bool goes_on, Scratch& scratch,
                         std::vector<Change>* changes = nullptr) const;

  bool changes_nothing() const { return rules_.empty(); }
  // Returns whether it is NFC or nothing: what is before and behind an unchanged stretch does not matter to it.
  bool only_composes() const;
  // Returns whether it puts a text before another, or replaces single characters by others, and nothing else.
  bool replaces_characters() const;
  // Returns what replaces a character, if that is all that happens to it.
  std::string_view replaced(std::string_view character) const;

 private:
  enum class Kind { compose, unicode_form, prepend, replace, strip };
  struct Rule {
    Kind kind;
    std::string text = {};  // put before, or instead
    int options = 0;        // of utf8proc, for another form than NFC
    bool strips_left = false, strips_right = false;
    std::vector<TextPattern> pattern = {};  // at most one
    std::string replaces = {};              // a pattern that is a text
  };
  void add(const nlohmann::json& part, const std::string& path);
  static void replace(const Rule& rule, std::string_view text, std::string& out, TextPattern::Scratch& scratch);

  std::vector<Rule> rules_;
};

}  // namespace megalith
