// A byte-level BPE in Hugging Face's formats: tokenizer.json, in and out, and the files beside it.
//
// tokenizer.json describes a pipeline: a normalizer, a pre-tokenizer, a model, a post-processor, a decoder, and tokens
// that are cut out of a text before all of them. Read is what GPT-2's is, and what makes the same ids as that: anything
// else is refused by its name, since a tokenizer that is almost right spoils a model silently.
#pragma once

#include <optional>
#include <string>

#include "data/bpe_vocabulary.h"

namespace megalith {

constexpr const char* tokenizer_json_file = "tokenizer.json";

// Merges in either notation, "a b" or ["a", "b"]. Special tokens beside the end of a text keep their ids; in a text
// they are plain text, as everywhere here. `named_end` is what files beside it name as the end of a text, if they do.
// Errors: as of read_bpe; a part that makes other ids (tokenizer_parts.h); an added token that is not special.
BpeVocabulary read_tokenizer_json(const std::string& path, const std::optional<std::string>& named_end = {});

// Writes what load_tokenizer reads as the same: vocab.json, merges.txt and, for what these cannot say, files beside
// them.
void write_tokenizer(const BpeVocabulary& vocabulary, const std::string& folder);

// What `transformers` wants of a tokenizer: tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocab.json
// and merges.txt. `context` is the most tokens that its model takes. Overwrites none.
void write_for_transformers(const BpeVocabulary& vocabulary, int64_t context, const std::string& folder);

// Error: one of these files is there.
void check_no_tokenizer_in(const std::string& folder);

}  // namespace megalith
