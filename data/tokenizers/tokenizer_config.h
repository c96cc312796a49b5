// tokenizer_config.json beside a tokenizer.json: some of its keys have `transformers` make other ids than
// tokenizer.json says. Inside data/ only.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace megalith {

// Error, by key: the file of a folder asks for what `file`, its tokenizer.json, does not say, or has a key that is not
// known and says something. Without the file nothing is asked for. Source: PreTrainedTokenizerFast and
// TokenizersBackend of `transformers` 4.46 and 5.
void check_tokenizer_config(const std::string& folder, const nlohmann::json& file);

// Returns a tokenizer's files, by name, with this chat template in Jinja in place of theirs; empty: with none.
std::map<std::string, std::string> with_chat_template(std::map<std::string, std::string> files,
                                                      const std::string& jinja);

}  // namespace megalith
