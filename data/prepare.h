// prepare turns text files into token files and the tokenizer that made them:
//
//   OUT/train.bin  OUT/train.idx  OUT/validation.bin  OUT/validation.idx     Megatron-LM's IndexedDataset (see below)
//   OUT/tokenizer/                                                            for load_tokenizer
//
// Every text file is one document of the training set, and its end is one document of the validation set; both end
// with end_of_text. Of a file of n bytes the last v = ceil(n * validation_fraction) go to validation, and as many
// before them (up to v, and up to 64 KiB) as make it begin with a line; failing that, with a character. At least one
// byte is left for training. A fraction of 0 makes no validation files.
//
// The tokens are those of encoding each document whole: files are read in windows and cut only where the tokenizer says
// that a cut changes nothing, and a window without such a place is read again, twice as large. Order is kept, whatever
// the number of threads. Memory: about 20 times window_bytes for each thread.
//
// Everything is written under OUT/prepare.partial, synced, and renamed when complete; .idx before .bin, so that no
// .bin is ever taken for a raw one. Nothing that exists is overwritten, and a failure leaves no files.
//
// Errors: a text that is missing, empty or not a plain file; a spec that is none of the three; what load_tokenizer and
// train_bpe refuse; OUT that holds one of the names already or cannot be written; a full disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

struct PrepareOptions {
  std::vector<std::string> text_files;
  std::string tokenizer;  // "bytes", "train:VOCAB", or a folder for load_tokenizer
  std::string out;
  double validation_fraction = 0.01;  // in [0, 1)
  int threads = 0;                    // 0: one for each core
  int64_t window_bytes = 1 << 20;
};

struct PrepareReport {
  struct Part {
    int64_t documents = 0, bytes = 0, tokens = 0;  // tokens count the end_of_text of each document
  };
  Part train, validation;
  int32_t vocab_size = 0;
  int bytes_per_token = 0;  // in the .bin: 2 or 4
};

// Called by one thread at a time, not always the caller's: what is being done, and how many of how many bytes.
using PrepareProgress = std::function<void(std::string_view stage, int64_t bytes_done, int64_t bytes_total)>;

PrepareReport prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace megalith
