// prepare turns texts into token files and the tokenizer that made them:
//
//   OUT/train.bin  OUT/train.idx  OUT/validation.bin  OUT/validation.idx     Megatron-LM's IndexedDataset
//   OUT/tokenizer/                                                            for load_tokenizer
//   OUT/prepared.json                                                         what was prepared and how
//
// A conversation (CorpusOptions::conversations) is an example: a document whose whole text comes from a chat template
// (chat_template.h). Its prepare also writes:
//
//   OUT/train.mask  OUT/validation.mask   a byte for each token of the .bin: 1 if it counts in the loss, else 0
//   OUT/chat_template.json                the template
//
// With shard_tokens the names are train-00000.bin, train-00001.bin, ... instead. Every document is encoded whole and
// ends with end_of_text. documents.h and text_batches.h define documents, validation_split.h the validation set. A bad
// document is an Error, unless at most skip_bad are bad: these are left out and counted.
//
// All cores work, order is kept, and the files depend neither on the number of threads nor on window_bytes. A thread
// needs about 20 times window_bytes; for a longer JSON line, a multiple of its bytes, as measured: 11 with the
// tokenizer `bytes`, 4 with a trained one; 31 and 8 for a conversation. Error, with the line's number: not enough
// memory for a line. Error: a text with 8 MiB that cannot be cut (text_batches.h).
//
// Everything is written under OUT/prepare.partial (prepare_folder.h), synced, and renamed when complete. If a prepare
// was killed, or failed after it had noted a position, it continues there when it is started again with the same
// options (threads and skip_bad may differ) and unchanged texts; with others it is an Error. Pipes cannot be continued.
// A complete prepare is recognized by prepared.json, and starting it again changes nothing.
//
// Errors: those of find_texts, open_bytes, load_tokenizer and train_bpe; an invalid tokenizer spec; OUT already holds
// one of the names or cannot be written; a full disk; train:VOCAB on a pipe, which would have to be read twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/conversations/chat_template.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/special_text.h"

namespace megalith {

// How conversations become examples, if CorpusOptions::conversations is set.
struct ExampleOptions {
  std::string chat_template;  // as for named_chat_template()
  TrainOn train_on = TrainOn::answers;
  enum class Longer { cut, leave_out };
  int64_t sequence_length = 0;  // examples of more than sequence_length + 1 tokens are longer; 0: no limit
  Longer longer = Longer::cut;
};

// Counts the examples of a prepare, for training and validation. Tokens that were cut or left out are not counted.
struct ExampleCounts {
  int64_t examples = 0, turns = 0, tokens = 0, counted = 0;  // turns: messages of user and assistant
  int64_t without_counted = 0;                               // examples in which no token counts
  int64_t cut = 0, cut_tokens = 0, left_out = 0;
  bool operator==(const ExampleCounts&) const = default;
};

struct PrepareOptions {
  CorpusOptions corpus;
  ExampleOptions examples = {};
  std::string tokenizer;  // "bytes", "train:VOCAB", or a folder for load_tokenizer
  std::string out;
  int64_t shard_tokens = 0;  // 0: one file
  int64_t skip_bad = 0;
  SpecialTexts special_texts = SpecialTexts::ids;
  int threads = 0;  // 0: one for each core
  int64_t window_bytes = 1 << 20;
  // The position is noted after this many bytes and this much time.
  int64_t note_bytes = 16 << 20;
  double note_seconds = 0.25;
};

struct PrepareReport {
  struct Counts {
    int64_t documents = 0, bytes = 0, tokens = 0;  // tokens include the end_of_text of each document
  };
  struct CommonToken {
    std::string text;
    double share;  // share of the training set's tokens
  };
  Counts train, validation;
  int32_t vocab_size = 0;
  int bytes_per_token = 0;  // in the .bin: 2 or 4
  ValidationSplit::Rule rule = ValidationSplit::Rule::nothing;
  std::vector<CommonToken> most_common;  // up to 5
  int64_t bad_documents = 0;
  std::string first_bad;   // why it is bad
  bool continued = false;  // an earlier prepare's work was continued
  std::string
      not_removed{};      // why OUT/prepare.partial could not be removed, though all is complete; empty: it was removed
  bool was_made = false;  // an earlier prepare was complete, and this one changed nothing
  // Special tokens that were encoded as ids in the training texts, by name.
  std::map<std::string, int64_t> special_texts = {};
  LeftOut left_out = {};           // entries of the named folders that were left out
  ExampleCounts examples = {};     // counts of conversations
  std::string end_of_answer = {};  // the end of an answer in the template of conversations, if it is several tokens
  // Set if the tokenizer's folder has another chat template than that of the conversations: a sentence that says so.
  std::string other_template = {};
};

// Called by one thread at a time, not always the caller's, with the current stage, the bytes read and the total bytes
// on the disk; 0 total bytes if the total is unknown.
using PrepareProgress = std::function<void(std::string_view stage, int64_t bytes_done, int64_t bytes_total)>;

PrepareReport prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace megalith
