// A corpus as a user names it: texts, what is held out, and the separator of documents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/corpus/text_batches.h"

namespace megalith {

struct CorpusOptions {
  std::vector<std::string> texts;           // as for find_texts
  std::string separator = "<|endoftext|>";  // empty: none
  std::string field = "text";
  std::optional<ConversationFields> conversations = {};  // instead of texts; whole ones are held out, however few
  bool pipes_are_json = false;
  double held_out_fraction = 0.01;  // in [0, 1)
};

// Reads the texts until it knows whether they have many documents or few, which decides what is held out; all of them
// if few. Of a pipe it reads and keeps at most 64 MiB: a longer one counts as many. Errors: as find_texts and
// open_bytes.
Corpus open_corpus(const CorpusOptions& options);

// Opens it again with what open_corpus found.
Corpus reopen_corpus(const CorpusOptions& options, std::vector<TextInput> inputs, HoldOut::Rule rule,
                     DocumentSizes sizes);

}  // namespace megalith
