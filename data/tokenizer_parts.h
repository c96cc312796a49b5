// Checks that the parts of a tokenizer.json make GPT-2's ids. Inside data/ only. Parts are judged by their effect:
// sequences by their elements, a pattern by how it splits (split_pattern.h); what changes no text and no id is ignored.
// So are truncation and padding, which belong to a call and which `transformers` resets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace megalith {

// Returns a member, or null if there is none.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

// Each returns what differs in a part, such as "the normalizer is NFC"; "" if nothing does.
std::string other_model(const nlohmann::json& model);
std::string other_normalizer(const nlohmann::json& normalizer);
std::string other_pre_tokenizer(const nlohmann::json& pre_tokenizer);
std::string other_post_processor(const nlohmann::json& post_processor);
std::string other_decoder(const nlohmann::json& decoder);

}  // namespace megalith
