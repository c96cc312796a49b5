// The Tokenizer of a BpeVocabulary: pre-tokens of pretokenizer.h, merged as in bpe_merger.h. Apart from tokenizer.h for
// callers that make a vocabulary themselves (training).
#pragma once

#include <memory>

#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary);

}  // namespace megalith
