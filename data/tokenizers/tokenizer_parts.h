// Members of the parts of a tokenizer.json, and checks whether these parts produce GPT-2's ids. Inside data/ only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/text_pattern.h"

namespace megalith {

// Error: a tokenizer's part made a text far longer than any real one would, so that several such parts would fill the
// memory.
void check_growth(size_t before, size_t after, const std::string& what);

// Returns a member, or null if absent.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

// Returns the type of a part; "none" for null, "unknown" if it has no type.
std::string type_of_part(const nlohmann::json& part);
// Collects the parts of a sequence, however nested, or the part itself; empty for null. `members` names the list.
std::vector<const nlohmann::json*> parts_of(const nlohmann::json& part, const char* members);
// Returns a member that must be a text; `what` names the part in messages.
std::string text_member(const nlohmann::json& part, const char* key, const std::string& what, const std::string& path);
// Returns a member that is true or false, or `absent` if it is absent. Error: any other value.
bool flag_member(const nlohmann::json& part, const char* key, bool absent, const std::string& what,
                 const std::string& path);
// Returns the member `pattern`, a String or a Regex. `text`, unless null, gets the String.
TextPattern pattern_of(const nlohmann::json& part, const std::string& what, const std::string& path,
                       std::string* text = nullptr);

// Adds the list model.merges, in either notation: "a b" or ["a", "b"].
void add_merges(const nlohmann::json& merges, BpeNames& names, const std::string& path);

// Returns the first part of a model that is not supported, such as "the model is Unigram"; "" if all are.
std::string other_model(const nlohmann::json& model);

// Each returns whether a part has the effect of GPT-2's. Parts are judged by their effect: sequences by their elements,
// a pattern by its spelling (is_gpt2_pattern). Parts that change no text and no id are ignored. So are truncation and
// padding, which belong to a call and which `transformers` resets.
bool normalizes_as_gpt2(const nlohmann::json& normalizer);
bool pre_tokenizes_as_gpt2(const nlohmann::json& pre_tokenizer);
bool adds_nothing(const nlohmann::json& post_processor);
bool decodes_as_gpt2(const nlohmann::json& decoder);

}  // namespace megalith
