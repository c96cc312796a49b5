// The pre-tokenizer of a tokenizer.json: cuts a text into pieces, within which the model merges. Inside data/ only.
// Supported: Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, and sequences of them.
//
// Immutable; any number of threads may use it, each with its own Scratch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/pretokenizer.h"
#include "data/tokenizers/text_pattern.h"

namespace megalith {

class TextCutter {
 public:
  // Errors: an unsupported type or value, by key and value. `path` begins the message.
  TextCutter(const nlohmann::json& pre_tokenizer, const std::string& path);

  class Pieces {
   public:
    virtual ~Pieces() = default;
    virtual void take(std::string_view piece) = 0;  // not empty; valid during the call
  };
  struct Place {
    bool begins = true;      // the text is the beginning of the whole text
    bool continues = false;  // or continues after a cut, so that no blank is added before it
  };
  struct Scratch {
    struct Stretch {
      size_t begin, end;
      bool is_match;
    };
    struct Rule {
      std::string text;
      std::vector<Stretch> parts;
    };
    std::vector<Rule> rules;
    TextPattern::Scratch pattern;
  };
  void cut(std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const;

  // Returns where a text with an unknown continuation may be cut, as Tokenizer::last_cut does: cut() of the two parts,
  // the second with continues set, gives the pieces of the whole. 0 if no place is found.
  size_t last_cut(std::string_view text, Scratch& scratch) const;

  // Returns the scanner that cuts as GPT-2 does; rules with GPT-2's pattern use it.
  static const Pretokenizer& pretokenizer();

  // Returns whether the last rule is ByteLevel: pieces are bytes, and the model names them by GPT-2's characters.
  bool gives_bytes() const { return gives_bytes_; }
  // Returns whether texts stay whole, except for replaced characters.
  bool leaves_whole() const;
  // Returns the text that replaces a blank.
  std::string_view blank() const;

 private:
  enum class Kind { split, byte_level, metaspace };
  enum class Behavior { isolated, removed, contiguous, with_previous, with_next };
  enum class Prefix { never, first, always };
  struct Rule {
    Kind kind;
    std::vector<TextPattern> pattern = {};  // of a split; at most one
    Behavior behavior = Behavior::isolated;
    bool is_inverted = false;
    bool cuts_as_gpt2 = false;      // with a Pretokenizer, instead of the pattern
    Prefix prefix = Prefix::never;  // ByteLevel and Metaspace
    std::string blank = {};         // Metaspace
    bool cuts = true;               // ByteLevel and Metaspace
  };
  void add(const nlohmann::json& part, const std::string& path);
  void add_split(const nlohmann::json& part, const std::string& path);
  void add_pattern(const std::string& pattern, Behavior behavior, const std::string& path, bool is_inverted = false);
  static Behavior behavior_of(const nlohmann::json& part, const std::string& what, const std::string& path);

  void cut(size_t rule, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const;
  void split(size_t rule, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const;
  void byte_level(size_t rule, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const;
  void metaspace(size_t rule, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const;
  void give(size_t rule, std::string_view text, size_t begin, size_t end, Place place, Pieces& pieces,
            Scratch& scratch) const;
  size_t last_cut(size_t rule, std::string_view text, Scratch& scratch) const;

  std::vector<Rule> rules_;
  bool gives_bytes_ = false;
};

}  // namespace megalith
