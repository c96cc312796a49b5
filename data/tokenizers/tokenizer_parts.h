// Members of the parts of a tokenizer.json, and whether these make GPT-2's ids. Inside data/ only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/text_pattern.h"

namespace megalith {

// Error: what a part of a tokenizer makes of a text is longer than any use would have it, so that parts in a row would
// fill the memory.
void check_growth(size_t before, size_t after, const std::string& what);

// Returns a member, or null if there is none.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

// Returns the type of a part; "none" for null, "unknown" if there is none.
std::string type_of_part(const nlohmann::json& part);
// Collects the parts of a sequence, however nested, or the part itself; none for null. `members` names the list.
std::vector<const nlohmann::json*> parts_of(const nlohmann::json& part, const char* members);
// Returns a member that must be a text; `what` is the part's name in messages.
std::string text_member(const nlohmann::json& part, const char* key, const std::string& what, const std::string& path);
// Returns a member that is true or false, or `absent` if there is none. Error: it is something else.
bool flag_member(const nlohmann::json& part, const char* key, bool absent, const std::string& what,
                 const std::string& path);
// Returns the member `pattern`, a String or a Regex. `text`, unless null, gets the String.
TextPattern pattern_of(const nlohmann::json& part, const std::string& what, const std::string& path,
                       std::string* text = nullptr);

// Adds the list model.merges, in either notation: "a b" or ["a", "b"].
void add_merges(const nlohmann::json& merges, BpeNames& names, const std::string& path);

// Returns what of a model is not known here, such as "the model is Unigram"; "" if all is.
std::string other_model(const nlohmann::json& model);

// Each returns whether a part makes what GPT-2's does. Parts are judged by their effect: sequences by their elements, a
// pattern by its spelling (is_gpt2_pattern); what changes no text and no id is ignored. So are truncation and padding,
// which belong to a call and which `transformers` resets.
bool normalizes_as_gpt2(const nlohmann::json& normalizer);
bool pre_tokenizes_as_gpt2(const nlohmann::json& pre_tokenizer);
bool adds_nothing(const nlohmann::json& post_processor);
bool decodes_as_gpt2(const nlohmann::json& decoder);

}  // namespace megalith
