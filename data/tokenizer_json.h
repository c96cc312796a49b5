// A byte-level BPE in Hugging Face's formats: tokenizer.json, in and out, and the files beside it.
//
// tokenizer.json describes a pipeline: a normalizer, a pre-tokenizer, a model, a post-processor, a decoder, and tokens
// that are cut out of a text before all of them. Read is what GPT-2's is, and what makes the same ids as that: anything
// else is refused by its name, since a tokenizer that is almost right spoils a model silently.
#pragma once

#include <string>

#include "data/bpe_vocabulary.h"

namespace megalith {

constexpr const char* tokenizer_json_file = "tokenizer.json";

// Merges in either notation, "a b" or ["a", "b"]. Special tokens beside <|endoftext|> keep their ids; in a text they
// are plain text, as everywhere here. Errors: as of read_bpe; another model than BPE, dropout, ignore_merges, prefixes
// or suffixes of parts of words; a normalizer; another pre-tokenizer than ByteLevel as GPT-2 has it; a post-processor
// that adds tokens; another decoder; an added token that is not special.
BpeVocabulary read_tokenizer_json(const std::string& path);

// What `transformers` wants of a tokenizer: tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocab.json
// and merges.txt. `context` is the most tokens that its model takes. Overwrites none.
void write_for_transformers(const BpeVocabulary& vocabulary, int64_t context, const std::string& folder);

// Error: one of these files is there.
void check_no_tokenizer_in(const std::string& folder);

}  // namespace megalith
