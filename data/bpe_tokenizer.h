// The Tokenizer of a BpeVocabulary: pieces of pretokenizer.h, merged as bpe_merger.h says. Kept apart from tokenizer.h
// for those who made a vocabulary themselves (training).
#pragma once

#include <memory>

#include "data/bpe_vocabulary.h"
#include "data/tokenizer.h"

namespace megalith {

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary);

}  // namespace megalith
