// prepare turns texts into token files and the tokenizer that made them:
//
//   OUT/train.bin  OUT/train.idx  OUT/validation.bin  OUT/validation.idx     Megatron-LM's IndexedDataset
//   OUT/tokenizer/                                                            for load_tokenizer
//   OUT/prepared.json                                                         what was prepared and how
//
// with shard_tokens train-00000.bin, train-00001.bin, ... instead. Every document is encoded whole and ends with
// end_of_text; where documents begin and end is said in documents.h and text_batches.h, which are held out in
// held_out.h. A bad document is an Error, or left out and counted as long as no more than skip_bad are.
//
// All cores work, order is kept, and the files do not depend on the number of threads or the size of windows. Memory,
// per thread: about 20 times window_bytes, or 8 times the longest JSON line if that is more. A text of which 8 MiB can
// be cut nowhere (text_batches.h) is an Error.
//
// Everything is written under OUT/prepare.partial (see prepare_folder.h), synced, and renamed when complete. A prepare
// that was killed, or failed after it had noted how far it was, goes on there when it is started again with the same
// options (only threads and skip_bad may differ) and unchanged texts; with others it is an Error. Texts that are pipes
// cannot go on. By prepared.json one that has ended is known in the same way, and makes nothing when it is started
// again.
//
// Errors: what find_texts, open_bytes, load_tokenizer and train_bpe refuse; a spec that is no tokenizer; OUT that holds
// one of the names already or cannot be written; a full disk; train:VOCAB on a pipe, which would have to be read twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "data/special_text.h"

namespace megalith {

struct PrepareOptions {
  CorpusOptions corpus;
  std::string tokenizer;  // "bytes", "train:VOCAB", or what load_tokenizer takes
  std::string out;
  int64_t shard_tokens = 0;  // 0: one file
  int64_t skip_bad = 0;
  SpecialTexts special_texts = SpecialTexts::ids;
  int threads = 0;  // 0: one for each core
  int64_t window_bytes = 1 << 20;
  // How far it is, is noted when so much of the text and so much time has passed.
  int64_t note_bytes = 16 << 20;
  double note_seconds = 0.25;
};

struct PrepareReport {
  struct Part {
    int64_t documents = 0, bytes = 0, tokens = 0;  // tokens count the end_of_text of each document
  };
  struct Piece {
    std::string text;
    double share;  // of the tokens of the training set
  };
  Part train, validation;
  int32_t vocab_size = 0;
  int bytes_per_token = 0;  // in the .bin: 2 or 4
  HoldOut::Rule held_out = HoldOut::Rule::nothing;
  std::vector<Piece> most_common;  // up to 5
  int64_t bad_documents = 0;
  std::string first_bad;   // what is bad about it
  bool continued = false;  // what an earlier prepare had begun
  std::string not_removed{};  // all is made, but OUT/prepare.partial could not be removed: why; empty: it is gone
  bool was_made = false;   // by an earlier prepare: this one had nothing to do
  // Special tokens in the texts that are trained on, by their names, where they became ids.
  std::map<std::string, int64_t> special_texts = {};
  LeftOut left_out = {};  // of the folders that are named
};

// Called by one thread at a time, not always the caller's: what is being done, and how many of how many bytes on the
// disk are read; of 0 if that is not known.
using PrepareProgress = std::function<void(std::string_view stage, int64_t bytes_done, int64_t bytes_total)>;

PrepareReport prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace megalith
