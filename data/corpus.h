// A corpus as a user names it: its texts, what is held out of it, and how its documents are told apart.
#pragma once

#include <string>
#include <vector>

#include "data/text_batches.h"

namespace megalith {

struct CorpusOptions {
  std::vector<std::string> texts;           // as for find_texts
  std::string separator = "<|endoftext|>";  // empty: none
  std::string field = "text";
  bool pipes_are_json = false;
  double held_out_fraction = 0.01;  // in [0, 1)
};

// Reads the texts until it knows whether they have many documents or few, which decides what is held out; all of them
// if they have few. Of a pipe it reads 64 MiB at most, which it keeps: what has more, but few documents by then, counts
// as of many. Errors: as find_texts and open_bytes.
Corpus open_corpus(const CorpusOptions& options);

// The same again, when what a corpus of these inputs has is known.
Corpus reopen_corpus(const CorpusOptions& options, std::vector<TextInput> inputs, HoldOut::Rule rule,
                     DocumentSizes sizes);

}  // namespace megalith
