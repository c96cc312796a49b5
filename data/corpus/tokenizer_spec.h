// The three ways to specify a tokenizer: "bytes", "train:VOCAB", or a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus/text_batches.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// Returns whether the spec is neither empty, "bytes" nor "train:...".
bool names_folder(const std::string& spec);

// Returns VOCAB of "train:VOCAB"; 0 for other specs. Errors: VOCAB is not a number from 258 to 16777216.
int32_t vocab_to_train(const std::string& spec);

// Trains a BPE on the training documents: on all of them if the corpus has at most sample_bytes, otherwise on evenly
// spaced windows of window_bytes (assuming that text compresses fourfold). Bad documents are skipped; a pre-token of
// more than 1 MiB counts as several. The result depends only on the corpus and the sizes, not on threads. Memory: less
// than sample_bytes for natural language, about 35 times that if no pre-token repeats (random bytes). `progress` gets
// the number of bytes read from the files.
struct TrainingSample {
  int64_t sample_bytes = int64_t{128} << 20;
  int64_t window_bytes = 1 << 20;
};
std::unique_ptr<Tokenizer> train_tokenizer(const Corpus& corpus, int32_t vocab_size, int threads,
                                           const TrainingSample& sample,
                                           const std::function<void(int64_t consumed)>& progress);

}  // namespace megalith
