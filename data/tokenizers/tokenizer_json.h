// Tokenizers in Hugging Face's formats: tokenizer.json, read and written, and the files beside it.
//
// tokenizer.json describes a pipeline: a normalizer, a pre-tokenizer, a model, a post-processor, a decoder, and added
// tokens that are cut out of a text first. What cuts texts as GPT-2 does becomes a byte-level BPE, which is faster; any
// other BPE goes through its pipeline (pipeline_tokenizer.h). A part that is not known is refused by name, since a
// tokenizer that is almost right silently spoils a model.
#pragma once

#include <string>

#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

constexpr const char* tokenizer_json_file = "tokenizer.json";

// Reads merges in either notation, "a b" or ["a", "b"], and the files beside it that it keeps as they are. `special`:
// what these say of special tokens. Errors: as of read_bpe; a part that is not known, by key and value.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const SpecialTokens& special = {});

// Writes the files that load_tokenizer reads back: vocab.json, merges.txt, and others for what these cannot say.
void write_tokenizer(const BpeVocabulary& vocabulary, const std::string& folder);

// Writes the files that `transformers` expects: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
// vocab.json and merges.txt, and a chat template if there is one. `context` is the model's most tokens. Overwrites
// none.
void write_for_transformers(const BpeVocabulary& vocabulary, int64_t context, const std::string& jinja,
                            const std::string& folder);

// Returns whether the tokenizer.json of a folder cuts texts as Qwen 2's does, which `transformers` takes for every
// model of that kind, whatever the file says.
bool cuts_as_qwen2(const std::string& folder);

// Error: one of these files exists.
void check_no_tokenizer_in(const std::string& folder);

}  // namespace megalith
