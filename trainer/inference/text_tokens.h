// Turns the texts that a model is evaluated on into tokens, in memory.
#pragma once

#include <string>
#include <vector>

#include "data/samples/token_stream.h"
#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/session/session.h"

namespace megalith {

// Collective. Returns on all ranks the tokens of each text, which rank 0 reads: the tokens that `megalith prepare`
// would write with the same tokenizer, --validation 0 and its defaults. `names` are as for find_texts. Errors, as
// JobError: those of find_texts and open_bytes, and a bad document (data/corpus/documents.h).
std::vector<TokenStream> tokens_of_texts(const std::vector<std::string>& names, const Tokenizer& tokenizer,
                                         SpecialTexts special_texts, const Session& session);

}  // namespace megalith
