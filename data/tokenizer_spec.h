// The three ways in which a user names a tokenizer: "bytes", "train:VOCAB", or a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/text_batches.h"
#include "data/tokenizer.h"

namespace megalith {

// Neither empty, nor "bytes", nor "train:...".
bool names_folder(const std::string& spec);

// The VOCAB of "train:VOCAB"; 0 for other specs. Errors: VOCAB is not a number from 258 to 16777216.
int32_t vocab_to_train(const std::string& spec);

// Trains a BPE on the documents of a corpus that are not held out: on all of them if the corpus has at most
// sample_bytes, otherwise on the first window_bytes of every so many, which are evenly spread (taking that compressed
// text is four times as long decompressed). Bad documents are passed over.
// Pre-tokens of more than 1 MiB count as several. The result depends on the corpus and the
// sizes only, not on the threads. Memory: about 35 times sample_bytes when no pre-token occurs twice (random bytes),
// less than sample_bytes for a language. `progress` is told how many bytes of the files were read.
struct TrainingSample {
  int64_t sample_bytes = int64_t{128} << 20;
  int64_t window_bytes = 1 << 20;
};
std::unique_ptr<Tokenizer> train_tokenizer(const Corpus& corpus, int32_t vocab_size, int threads,
                                           const TrainingSample& sample,
                                           const std::function<void(int64_t consumed)>& progress);

}  // namespace megalith
