// Judges the parts of a tokenizer.json, which have to make the ids that GPT-2's would. Inside data/ only.
//
// Parts are judged by what they do: sequences by what stands in them, a pattern by how it cuts (split_pattern.h), and
// what changes no text and no id is passed over. Truncation and padding are of calls, not of a tokenizer, and
// `transformers` resets them at each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace megalith {

// A member, or null where there is none.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

// Each returns what differs in a part, such as "the normalizer is NFC"; nothing if nothing does.
std::string other_model(const nlohmann::json& model);
std::string other_normalizer(const nlohmann::json& normalizer);
std::string other_pre_tokenizer(const nlohmann::json& pre_tokenizer);
std::string other_post_processor(const nlohmann::json& post_processor);
std::string other_decoder(const nlohmann::json& decoder);

}  // namespace megalith
