// The decoder of a tokenizer.json: it turns the names of tokens into a text. Inside data/ only. Known: ByteLevel,
// Replace, ByteFallback, Fuse, Strip, Metaspace, and sequences of them. Immutable.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/text_pattern.h"

namespace megalith {

class TokenDecoder {
 public:
  // Without a decoder names are texts, with `of_bytes` those of bytes. Error: a type that is not known, by key and
  // value.
  TokenDecoder(const nlohmann::json& decoder, bool of_bytes, const std::string& path);

  // Returns the text that `tokenizers` makes of tokens: what is not UTF-8 becomes U+FFFD.
  std::string text_of(std::vector<std::string> names) const;
  // Returns the bytes that a token stands for inside a text.
  std::string bytes_inside(std::string name) const;

 private:
  enum class Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace };
  struct Rule {
    Kind kind;
    std::vector<TextPattern> pattern = {};  // of a replacement, one
    std::string text = {};                  // put instead, or stripped, or a blank's name
    size_t first = 0, last = 0;             // so many are stripped
    bool prepends = false;
  };
  void add(const nlohmann::json& part, const std::string& path);

  std::vector<Rule> rules_;
};

}  // namespace megalith
