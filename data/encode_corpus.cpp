#include "data/encode_corpus.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/documents.h"
#include "data/ordered_parallel.h"

namespace megalith {

namespace {

class BatchEncoder {
 public:
  BatchEncoder(const Corpus& corpus, const Tokenizer& tokenizer, SpecialTexts special_texts)
      : corpus_(corpus),
        documents_(corpus),
        special_(tokenizer),
        encoder_(special_texts == SpecialTexts::ids ? special_.encoder(tokenizer) : tokenizer.encoder()),
        special_texts_(special_texts),
        beginning_(tokenizer.beginning()),
        ending_(ending_of(tokenizer)) {}

  EncodedBatch encode(TextBatch&& batch) {
    EncodedBatch encoded{{}, {}, batch.end, static_cast<int64_t>(batch.text.size()), batch.consumed};
    encoded.ids.reserve(batch.text.size() / 3);
    documents_.documents_of(batch, [&](const Document& document) {
      std::string bad = document.bad;
      if (bad.empty() && special_texts_ == SpecialTexts::refuse) bad = special_token_in(document.text, batch);
      if (bad.empty()) {
        if (document.is_first) {
          encoded.ids.insert(encoded.ids.end(), beginning_.begin(), beginning_.end());
          encoder_->encode(document.text, encoded.ids);
        } else {
          encoder_->go_on(document.text, encoded.ids);
        }
        if (document.is_last) encoded.ids.insert(encoded.ids.end(), ending_.begin(), ending_.end());
      }
      encoded.documents.push_back({encoded.ids.size(), static_cast<int64_t>(document.text.size()), document.held_out,
                                   document.is_last, std::move(bad)});
    });
    return encoded;
  }

 private:
  std::string special_token_in(std::string_view text, const TextBatch& batch) const {
    const std::string why = why_refused(special_, text, batch.begin.offset);
    return why.empty() ? ""
                       : corpus_.inputs[static_cast<size_t>(batch.begin.input)].name() + " has, in a document, " + why;
  }

  const Corpus& corpus_;
  DocumentReader documents_;
  SpecialText special_;
  std::unique_ptr<Encoder> encoder_;
  SpecialTexts special_texts_;
  std::vector<int32_t> beginning_, ending_;
};

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<int32_t> ending_of(const Tokenizer& tokenizer) {
  std::vector<int32_t> ending = tokenizer.ending();
  if (ending.empty() || ending.back() != tokenizer.end_of_text()) ending.push_back(tokenizer.end_of_text());
  return ending;
}

void encode_corpus(const Corpus& corpus, const Tokenizer& tokenizer, const PrepareOptions& options, int threads,
                   PrepareFolder& folder, TokenFiles& files, const std::function<void(int64_t consumed)>& advance) {
  const SpecialText special(tokenizer);
  TextBatches batches(
      corpus, options.window_bytes,
      [&](std::string_view text) {
        return options.special_texts == SpecialTexts::ids ? special.last_cut(tokenizer, text)
                                                          : tokenizer.last_cut(text);
      },
      files.position().text);
  const bool can_go_on = corpus.disk_bytes() > 0;
  Clock since_noted;
  int64_t not_noted = 0;
  double wait = options.note_seconds;
  ordered_parallel<TextBatch, EncodedBatch>(
      threads, [&](TextBatch& batch) { return batches.next(batch); },
      [&]() -> std::function<EncodedBatch(TextBatch &&)> {
        const auto encoder = std::make_shared<BatchEncoder>(corpus, tokenizer, options.special_texts);
        return [encoder](TextBatch&& batch) { return encoder->encode(std::move(batch)); };
      },
      [&](EncodedBatch&& batch) {
        files.write(batch);
        advance(batch.consumed);
        not_noted += batch.text_bytes;
        if (!can_go_on || not_noted < options.note_bytes || since_noted.seconds() < wait) return;
        since_noted.restart();
        folder.note(PrepareFolder::position, to_json(files.sync()));
        folder.keep();
        not_noted = 0;
        // However slow the disk is, notes take at most a twentieth of the time.
        if (options.note_seconds > 0) wait = std::max(options.note_seconds, 20 * since_noted.seconds());
      });
  // Finishing removes what earlier notes may count.
  if (can_go_on) folder.note(PrepareFolder::position, to_json(files.sync()));
  files.finish();
}

}  // namespace megalith
