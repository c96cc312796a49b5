// A corpus as a user specifies it: texts, the validation fraction, and the separator of documents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/corpus/text_batches.h"

namespace megalith {

struct CorpusOptions {
  std::vector<std::string> texts;           // as for find_texts
  std::string separator = "<|endoftext|>";  // empty: no separator
  std::string field = "text";
  // Set if the corpus has conversations instead of texts. Its validation set then holds whole ones, however few.
  std::optional<ConversationFields> conversations = {};
  bool pipes_are_json = false;
  double validation_fraction = 0.01;  // at least 0, below 1
};

// Reads the texts until it knows whether they have many documents or few, which decides how the validation set is
// chosen; if few, all of them. Of a pipe it reads and keeps at most 64 MiB: a longer one counts as many. Errors: those
// of find_texts and open_bytes.
Corpus open_corpus(const CorpusOptions& options);

// Opens a corpus again with the results of an earlier open_corpus.
Corpus reopen_corpus(const CorpusOptions& options, std::vector<TextInput> inputs, ValidationSplit::Rule rule,
                     DocumentSizes sizes);

}  // namespace megalith
