#include "data/corpus/encode_corpus.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "data/corpus/documents.h"
#include "data/corpus/ordered_parallel.h"
#include "kernels/system/process_limits.h"

namespace megalith {

namespace {

class BatchEncoder {
 public:
  // `chat` is null unless the corpus has conversations. It must outlive the encoder.
  BatchEncoder(const Corpus& corpus, const Tokenizer& tokenizer, const PrepareOptions& options,
               const ChatTemplate* chat)
      : corpus_(corpus),
        options_(options.examples),
        chat_template_(chat),
        documents_(corpus),
        special_(tokenizer),
        encoder_(options.special_texts == SpecialTexts::ids ? special_.encoder(tokenizer) : tokenizer.encoder()),
        special_texts_(options.special_texts),
        beginning_(tokenizer.beginning()),
        ending_(ending_of(tokenizer)) {
    if (chat) chat_.emplace(*chat, tokenizer, special_texts_);
  }

  EncodedBatch encode(TextBatch&& batch) {
    return with_memory_for([&] { return place_of(corpus_, batch.begin); }, [&] { return encode_documents(batch); });
  }

 private:
  EncodedBatch encode_documents(const TextBatch& batch) {
    EncodedBatch encoded{.ids = {},
                         .counts = {},
                         .documents = {},
                         .end = batch.end,
                         .text_bytes = static_cast<int64_t>(batch.text.size()),
                         .consumed = batch.consumed};
    encoded.ids.reserve(batch.text.size() / 3);
    documents_.documents_of(batch, [&](const Document& document) {
      if (chat_) return encode_example(document, encoded);
      std::string bad = document.bad;
      if (bad.empty() && special_texts_ == SpecialTexts::refuse) bad = special_token_in(document.text, batch);
      if (bad.empty()) {
        if (document.is_first) {
          encoded.ids.insert(encoded.ids.end(), beginning_.begin(), beginning_.end());
          encoder_->encode(document.text, encoded.ids);
        } else {
          encoder_->encode_rest(document.text, encoded.ids);
        }
        if (document.is_last) encoded.ids.insert(encoded.ids.end(), ending_.begin(), ending_.end());
      }
      encoded.documents.push_back({encoded.ids.size(),
                                   static_cast<int64_t>(document.text.size()),
                                   document.for_validation,
                                   document.is_last,
                                   std::move(bad),
                                   {}});
    });
    return encoded;
  }

  void encode_example(const Document& document, EncodedBatch& encoded) {
    EncodedDocument& example = encoded.documents.emplace_back(
        EncodedDocument{encoded.ids.size(), 0, document.for_validation, true, document.bad, {}});
    if (example.bad.empty())
      if (const std::string why = why_no_conversation(*chat_template_, document.messages); !why.empty())
        example.bad = fmt::format("{} is not a conversation: {}", document.where, why);
    if (!example.bad.empty()) return;
    const auto first = encoded.ids.size();
    try {
      example.bytes = chat_->encode(document.messages, options_.train_on, encoded.ids, encoded.counts);
    } catch (const Error& error) {
      encoded.ids.resize(first);
      encoded.counts.resize(first);
      example.bad = fmt::format("{} is not an example: {}", document.where, error.what());
      return;
    }
    const int64_t tokens = std::ssize(encoded.ids) - static_cast<int64_t>(first);
    ExampleCounts& counts = example.counts;
    if (const int64_t most = options_.sequence_length + 1; options_.sequence_length > 0 && tokens > most) {
      const bool cuts = options_.longer == ExampleOptions::Longer::cut;
      counts = {.cut = cuts ? 1 : 0, .cut_tokens = cuts ? tokens - most : 0, .left_out = cuts ? 0 : 1};
      encoded.ids.resize(first + static_cast<size_t>(cuts ? most : 0));
      encoded.counts.resize(encoded.ids.size());
    }
    example.end = encoded.ids.size();
    if (counts.left_out > 0) return;
    counts.examples = 1;
    counts.turns = std::ranges::count_if(document.messages, [](const ChatMessage& m) { return m.role != "system"; });
    counts.tokens = std::ssize(encoded.ids) - static_cast<int64_t>(first);
    counts.counted = std::count(encoded.counts.begin() + static_cast<ptrdiff_t>(first), encoded.counts.end(), 1);
    counts.without_counted = counts.counted == 0 ? 1 : 0;
  }

  std::string special_token_in(std::string_view text, const TextBatch& batch) const {
    const std::string why = why_refused(special_, text, batch.begin.offset);
    return why.empty() ? ""
                       : corpus_.inputs[static_cast<size_t>(batch.begin.input)].name() + " has, in a document, " + why;
  }

  const Corpus& corpus_;
  const ExampleOptions& options_;
  const ChatTemplate* chat_template_;
  std::optional<ChatEncoder> chat_;
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

ExampleCounts operator+(const ExampleCounts& a, const ExampleCounts& b) {
  return {.examples = a.examples + b.examples,
          .turns = a.turns + b.turns,
          .tokens = a.tokens + b.tokens,
          .counted = a.counted + b.counted,
          .without_counted = a.without_counted + b.without_counted,
          .cut = a.cut + b.cut,
          .cut_tokens = a.cut_tokens + b.cut_tokens,
          .left_out = a.left_out + b.left_out};
}

namespace {

TextBatches::LastCut last_cut_of(const Tokenizer& tokenizer, const SpecialText& special, SpecialTexts special_texts) {
  return [&tokenizer, &special, special_texts](std::string_view text) {
    return special_texts == SpecialTexts::ids ? special.last_cut(tokenizer, text) : tokenizer.last_cut(text);
  };
}

}  // namespace

EncodedTexts encode_texts(const Corpus& corpus, const Tokenizer& tokenizer, SpecialTexts special_texts) {
  PrepareOptions options;
  options.special_texts = special_texts;
  const SpecialText special(tokenizer);
  TextBatches batches(corpus, options.window_bytes, last_cut_of(tokenizer, special, special_texts));
  BatchEncoder encoder(corpus, tokenizer, options, nullptr);
  EncodedTexts all;
  bool begins = true;
  for (TextBatch batch; batches.next(batch);) {
    const EncodedBatch encoded = encoder.encode(std::move(batch));
    const auto before = static_cast<int64_t>(all.ids.size());
    size_t begin = 0;
    for (const EncodedDocument& document : encoded.documents) {
      CHECK(document.bad.empty(), "{}", document.bad);
      const int64_t at = before + static_cast<int64_t>(begin);
      if (begins && at > 0) all.begins.push_back(at);
      begins = document.is_last;
      begin = document.end;
    }
    all.ids.insert(all.ids.end(), encoded.ids.begin(), encoded.ids.end());
  }
  return all;
}

void encode_corpus(const Corpus& corpus, const Tokenizer& tokenizer, const PrepareOptions& options,
                   const ChatTemplate* chat, int threads, PrepareFolder& folder, TokenFiles& files,
                   const std::function<void(int64_t consumed)>& advance) {
  const SpecialText special(tokenizer);
  TextBatches batches(corpus, options.window_bytes, last_cut_of(tokenizer, special, options.special_texts),
                      files.position().text);
  const bool is_resumable = corpus.disk_bytes() > 0;
  Clock since_noted;
  int64_t not_noted = 0;
  double wait = options.note_seconds;
  ordered_parallel<TextBatch, EncodedBatch>(
      threads, [&](TextBatch& batch) { return batches.next(batch); },
      [&]() -> std::function<EncodedBatch(TextBatch &&)> {
        const auto encoder = std::make_shared<BatchEncoder>(corpus, tokenizer, options, chat);
        return [encoder](TextBatch&& batch) { return encoder->encode(std::move(batch)); };
      },
      [&](EncodedBatch&& batch) {
        files.write(batch);
        advance(batch.consumed);
        not_noted += batch.text_bytes;
        if (!is_resumable || not_noted < options.note_bytes || since_noted.seconds() < wait) return;
        since_noted.restart();
        folder.note(PrepareFolder::position, to_json(files.sync()));
        folder.keep();
        not_noted = 0;
        // However slow the disk is, notes take at most a twentieth of the time.
        if (options.note_seconds > 0) wait = std::max(options.note_seconds, 20 * since_noted.seconds());
      });
  // Finishing removes files that earlier notes may count.
  if (is_resumable) folder.note(PrepareFolder::position, to_json(files.sync()));
  files.finish();
}

}  // namespace megalith
