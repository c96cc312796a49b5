// The Tokenizer of a tokenizer.json that says how texts become ids: its added tokens are cut out, each piece between
// them is normalized (text_normalizer.h) and cut again (text_cutter.h), the model merges in what is left (bpe_model.h),
// and the post-processor adds tokens to the beginning and the end of a text. Inside data/ only.
//
// Ids are those of Hugging Face's `tokenizers` 0.23, and decode() is its decode(), but for one thing: where all parts
// are GPT-2's, decode() keeps invalid UTF-8. Every part that is not known is refused, by key and value.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// `file` is tokenizer.json, `files` are the tokenizer's files by name, as they came, and `special` is what those beside
// it say of special tokens.
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const nlohmann::json& file, const std::string& path,
                                                   std::map<std::string, std::string> files,
                                                   const SpecialTokens& special);

}  // namespace megalith
