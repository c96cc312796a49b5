// The normalizer of a tokenizer.json: changes a text, or each piece of it between added tokens, before it is cut.
// Inside data/ only. Supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, and sequences of them.
//
// Bytes that are not UTF-8 are kept. Immutable; any number of threads may use it, each with its own Scratch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/text_pattern.h"

namespace megalith {

class TextNormalizer {
 public:
  // Error: an unsupported type, by key and value. `path` begins the message.
  TextNormalizer(const nlohmann::json& normalizer, const std::string& path);

  // A changed stretch of a text, and its replacement.
  struct Change {
    size_t begin, end, new_begin, new_end;
  };
  struct Scratch {
    std::string text, other;
    TextPattern::Scratch pattern;
  };
  // Returns the normalized text, valid until the next call with this scratch and as long as the text. `continues`: the
  // text continues after a cut, so that no prefix is added. `changes`, unless null, gets the changes in order; this
  // needs only_composes().
  std::string_view apply(std::string_view text, bool continues, Scratch& scratch,
                         std::vector<Change>* changes = nullptr) const;

  bool changes_nothing() const { return rules_.empty(); }
  // Returns whether it is NFC or does nothing, so that an unchanged stretch does not depend on its context.
  bool only_composes() const;
  // Returns whether it only adds a prefix or replaces single characters.
  bool replaces_characters() const;
  // Returns the replacement of a character, if it is only replaced.
  std::string_view replaced(std::string_view character) const;

 private:
  enum class Kind { compose, unicode_form, prepend, replace, strip };
  struct Rule {
    Kind kind;
    std::string text = {};  // the prefix or the replacement
    int options = 0;        // utf8proc's options, for a form other than NFC
    bool strips_left = false, strips_right = false;
    std::vector<TextPattern> pattern = {};  // empty or one pattern
    std::string replaces = {};              // a pattern that is a plain text
  };
  void add(const nlohmann::json& part, const std::string& path);
  static void replace(const Rule& rule, std::string_view text, std::string& out, TextPattern::Scratch& scratch);

  std::vector<Rule> rules_;
};

}  // namespace megalith
