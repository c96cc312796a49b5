// Encodes a corpus into token files, in order, with notes of the position from which a restart can continue.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/conversations/chat_template.h"
#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "data/corpus/prepare_folder.h"
#include "data/corpus/prepare_journal.h"
#include "data/samples/token_shards.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// The tokens of a batch, and the position in the texts after it.
struct EncodedDocument {
  size_t end;     // end of its tokens
  int64_t bytes;  // size of its text
  bool for_validation, is_last;
  std::string bad;
  ExampleCounts counts = {};  // of a conversation; one that is left out has no tokens, and is not a document
};
struct EncodedBatch {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counts;  // for each id of conversations: 1 if it counts, else 0
  std::vector<EncodedDocument> documents;
  TextPosition end;
  int64_t text_bytes, consumed;
};

ExampleCounts operator+(const ExampleCounts& a, const ExampleCounts& b);

// Writes encoded batches in order, and keeps the position.
class TokenFiles {
 public:
  TokenFiles(const std::string& folder, const PrepareOptions& options, int64_t vocab_size, PreparePosition from)
      : skip_bad_(options.skip_bad),
        masked_(options.corpus.conversations.has_value()),
        train_(folder, "train", vocab_size, options.shard_tokens, from.train, masked_),
        validation_(folder, "validation", vocab_size, options.shard_tokens, from.validation, masked_),
        position_(std::move(from)) {}

  void write(const EncodedBatch& batch) {
    size_t begin = 0;
    for (const EncodedDocument& document : batch.documents) {
      const size_t count = document.end - begin;
      write(document, std::span(batch.ids).subspan(begin, count),
            masked_ ? std::span(batch.counts).subspan(begin, count) : std::span<const uint8_t>());
      begin = document.end;
    }
    position_.text = batch.end;
  }

  const PreparePosition& sync() {
    position_.train = train_.sync();
    position_.validation = validation_.sync();
    return position_;
  }
  void finish() {
    train_.finish();
    validation_.finish();
    sync();
  }
  const PreparePosition& position() const { return position_; }
  const TokenShards& train() const { return train_; }
  const TokenShards& validation() const { return validation_; }

 private:
  void write(const EncodedDocument& document, std::span<const int32_t> ids, std::span<const uint8_t> counts) {
    TokenShards& shards = document.for_validation ? validation_ : train_;
    if (!document.bad.empty() && !position_.in_bad_document) {
      pass_over(document.bad);
      if (shards.mark().open_bytes > 0) shards.drop_document();
      position_.in_bad_document = true;
    }
    if (position_.in_bad_document) {
      position_.in_bad_document = !document.is_last;
      return;
    }
    position_.examples = position_.examples + document.counts;
    if (document.counts.left_out > 0) return;
    shards.add(ids, document.bytes, counts);
    if (document.is_last) shards.end_document();
  }

  void pass_over(const std::string& bad) {
    CHECK(skip_bad_ > 0, "{}; to leave out up to N such documents, use --skip-bad N", bad);
    CHECK(position_.bad_documents < skip_bad_, "{}; bad document {} exceeds --skip-bad {}", bad,
          position_.bad_documents + 1, skip_bad_);
    if (position_.bad_documents++ == 0) position_.first_bad = bad;
  }

  int64_t skip_bad_;
  bool masked_;
  TokenShards train_, validation_;
  PreparePosition position_;
};

// Returns the tokens that follow each document: those that the tokenizer adds, and end_of_text if that is not the last
// of them.
std::vector<int32_t> ending_of(const Tokenizer& tokenizer);

// The tokens of texts in memory. Documents begin at token 0 and at `begins`.
struct EncodedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> begins;
};

// Encodes a corpus without a validation set, as encode_corpus does, on one thread. Error: a bad document.
EncodedTexts encode_texts(const Corpus& corpus, const Tokenizer& tokenizer, SpecialTexts special_texts);

// Encodes the texts from the position of `files` on, and finishes the files. `chat` is the template of conversations,
// or null. `advance` gets the bytes of the inputs that were consumed.
void encode_corpus(const Corpus& corpus, const Tokenizer& tokenizer, const PrepareOptions& options,
                   const ChatTemplate* chat, int threads, PrepareFolder& folder, TokenFiles& files,
                   const std::function<void(int64_t consumed)>& advance);

}  // namespace megalith
