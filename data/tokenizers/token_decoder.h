// The decoder of a tokenizer.json: turns the names of tokens into a text. Inside data/ only. Supported: ByteLevel,
// Replace, ByteFallback, Fuse, Strip, Metaspace, and sequences of them. Immutable.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/text_pattern.h"

namespace megalith {

class TokenDecoder {
 public:
  // Without a decoder, names are texts or, with `of_bytes`, the names of bytes. Error: an unsupported type, by key and
  // value.
  TokenDecoder(const nlohmann::json& decoder, bool of_bytes, const std::string& path);

  // Returns the text of tokens as `tokenizers` decodes them; bytes that are not UTF-8 become U+FFFD.
  std::string text_of(std::vector<std::string> names) const;
  // Returns the bytes of a token inside a text.
  std::string bytes_inside(std::string name) const;

 private:
  enum class Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace };
  struct Rule {
    Kind kind;
    std::vector<TextPattern> pattern = {};  // of a replacement; at most one
    std::string text = {};                  // the replacement, the stripped text, or the name of a blank
    size_t first = 0, last = 0;             // number of stripped characters at either end
    bool prepends = false;
  };
  void add(const nlohmann::json& part, const std::string& path);

  std::vector<Rule> rules_;
};

}  // namespace megalith
