// The Tokenizer of a tokenizer.json. A text becomes ids in these steps: added tokens are cut out, each piece between
// them is normalized (text_normalizer.h) and cut again (text_cutter.h), the model merges within the results
// (bpe_model.h), and the post-processor adds tokens at the beginning and the end. Inside data/ only.
//
// Ids are those of Hugging Face's `tokenizers` 0.23, and decode() is its decode(), with one exception: if all parts are
// GPT-2's, decode() keeps invalid UTF-8. Unsupported parts are refused, by key and value.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// `file` is tokenizer.json, `files` are the original files of the tokenizer by name, and `special` the special tokens
// that the other files name.
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const nlohmann::json& file, const std::string& path,
                                                   std::map<std::string, std::string> files,
                                                   const SpecialTokens& special);

}  // namespace megalith
