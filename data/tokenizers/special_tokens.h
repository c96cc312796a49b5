// Special tokens that the files next to a vocabulary name: tokenizer_config.json, special_tokens_map.json and, from old
// versions of `transformers`, added_tokens.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace megalith {

constexpr const char* tokenizer_config_file = "tokenizer_config.json";
constexpr const char* special_tokens_file = "special_tokens_map.json";
constexpr const char* added_tokens_file = "added_tokens.json";

constexpr const char* jinja_file = "chat_template.jinja";

struct SpecialTokens {
  TokenUse use;                          // each role is from the first file that has it
  std::optional<std::string> end;        // the eos_token
  std::vector<std::string> names;        // all special tokens named
  std::map<std::string, int64_t> added;  // special tokens with ids
};

// Reads those of the files that a folder has. Error: one of them is not a JSON object.
SpecialTokens special_tokens_in(const std::string& folder);

// Returns the chat template that `transformers` uses for a folder: its chat_template.jinja or, if absent, the
// "chat_template" of its tokenizer_config.json, of several the one named "default"; "": none.
std::string jinja_in(const std::string& folder);

}  // namespace megalith
