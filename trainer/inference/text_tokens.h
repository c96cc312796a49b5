// Makes tokens of the texts that a model is evaluated on, in memory.
#pragma once

#include <string>
#include <vector>

#include "data/samples/token_stream.h"
#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/session/session.h"

namespace megalith {

// Collective. Returns the tokens of each text, read by rank 0, on all ranks: those that `megalith prepare` makes of it
// with the same tokenizer, --validation 0 and the defaults of its other options. `names` are as for find_texts. Errors,
// as JobError: those of find_texts and open_bytes, and a bad document (data/corpus/documents.h).
std::vector<TokenStream> tokens_of_texts(const std::vector<std::string>& names, const Tokenizer& tokenizer,
                                         SpecialTexts special_texts, const Session& session);

}  // namespace megalith
