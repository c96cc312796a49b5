// Checks the tokenizer_config.json next to a tokenizer.json: some of its keys make `transformers` produce other ids
// than tokenizer.json describes. Inside data/ only.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace megalith {

// Error, by key: the folder's file asks for something that `file`, its tokenizer.json, does not specify, or has an
// unknown key with a value that is not empty. Does nothing if the file is absent. Source: PreTrainedTokenizerFast and
// TokenizersBackend of `transformers` 4.46 and 5.
void check_tokenizer_config(const std::string& folder, const nlohmann::json& file);

// Returns a tokenizer's files, by name, with this chat template in Jinja in place of their own; empty: without one.
std::map<std::string, std::string> with_chat_template(std::map<std::string, std::string> files,
                                                      const std::string& jinja);

}  // namespace megalith
