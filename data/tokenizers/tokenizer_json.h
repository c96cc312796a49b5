// Tokenizers in Hugging Face's formats: tokenizer.json, read and written, and the files next to it.
//
// tokenizer.json describes a pipeline (pipeline_tokenizer.h); vocab.json and merges.txt describe GPT-2's. Unsupported
// parts are refused by name, since a tokenizer that is almost right silently spoils a model.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

constexpr const char* tokenizer_json_file = "tokenizer.json";

// Files of a tokenizer's folder that are read, and kept unchanged.
inline constexpr std::array files_of_tokenizer = {
    tokenizer_json_file, tokenizer_config_file, special_tokens_file, added_tokens_file,
    vocab_file,          merges_file,           "tokenizer.model",   jinja_file};

// Makes the tokenizer of a folder's files, by name: of tokenizer.json or, if absent, of vocab.json and merges.txt.
// `special` holds the special tokens of the other files. Errors: a file that is empty or not JSON; ids that are not
// 0..V-1, each once; a part or result of a merge without a token; a merge given twice; with GPT-2's parts, a byte
// without a token; no end_of_text; an unsupported part, by key and value.
std::unique_ptr<Tokenizer> tokenizer_of_files(std::map<std::string, std::string> files, const std::string& folder,
                                              const SpecialTokens& special);

// Makes a tokenizer with GPT-2's parts and the given vocabulary.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeVocabulary& vocabulary);

// Completes the files, by name, of a tokenizer with GPT-2's parts for `transformers`: adds tokenizer.json if it is
// absent; if tokenizer_config.json is absent, adds it and special_tokens_map.json. `context` is the model's maximum
// number of tokens.
void add_for_transformers(std::map<std::string, std::string>& files, const SpecialTokens& special,
                          const std::string& end_name, int64_t context);

// Returns whether the tokenizer.json of a folder cuts texts as Qwen 2's does. `transformers` assumes so for every model
// of that kind, whatever the file says.
bool cuts_as_qwen2(const std::string& folder);

// Error: one of these files exists.
void check_no_tokenizer_in(const std::string& folder);

}  // namespace megalith
