#include "data/corpus/tokenizer_spec.h"

#include <algorithm>
#include <charconv>

#include "data/corpus/documents.h"
#include "data/corpus/ordered_parallel.h"
#include "data/samples/known_files.h"
#include "data/tokenizers/bpe_trainer.h"
#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/check.h"
#include "kernels/system/process_limits.h"

namespace megalith {

namespace {

constexpr std::string_view train_prefix = "train:";
constexpr int32_t largest_trained_vocab = 1 << 24;

// Returns n if every n-th batch of a corpus suffices.
int64_t stride_of(const Corpus& corpus, const TrainingSample& sample) {
  constexpr int64_t compression = 4;
  int64_t total = 0;
  for (const TextInput& input : corpus.inputs)
    total += input.size * (compression_in_name(input.path).empty() ? 1 : compression);
  return std::max<int64_t>((total + sample.sample_bytes - 1) / sample.sample_bytes, 1);
}

}  // namespace

bool names_folder(const std::string& spec) {
  return !spec.empty() && spec != "bytes" && !spec.starts_with(train_prefix);
}

int32_t vocab_to_train(const std::string& spec) {
  if (!spec.starts_with(train_prefix)) return 0;
  const char *begin = spec.data() + train_prefix.size(), *end = spec.data() + spec.size();
  int32_t vocab = 0;
  const auto [stop, error] = std::from_chars(begin, end, vocab);
  CHECK(error == std::errc() && stop == end && vocab >= smallest_trained_vocab && vocab <= largest_trained_vocab,
        "the tokenizer \"{}\" has no valid vocabulary size; give a number from {} to {}, as in train:4096", spec,
        smallest_trained_vocab, largest_trained_vocab);
  return vocab;
}

std::unique_ptr<Tokenizer> train_tokenizer(const Corpus& corpus, int32_t vocab_size, int threads,
                                           const TrainingSample& sample,
                                           const std::function<void(int64_t consumed)>& progress) {
  const Pretokenizer pretokenizer;
  const int64_t stride = stride_of(corpus, sample);
  TextBatches batches(corpus, sample.window_bytes, [&](std::string_view text) {
    size_t cut = pretokenizer.last_cut(text);
    if (cut > 0 || text.size() <= PretokenCounts::longest_pretoken) return cut;
    for (cut = PretokenCounts::longest_pretoken; (static_cast<uint8_t>(text[cut]) & 0xc0) == 0x80;) cut--;
    return cut;
  });
  int64_t num_batches = 0, taken = 0;
  const auto take = [&](TextBatch& batch) {
    do {
      if (taken >= sample.sample_bytes || !batches.next(batch)) return false;
    } while (num_batches++ % stride != 0);
    taken += static_cast<int64_t>(batch.text.size());
    return true;
  };
  std::vector<std::unique_ptr<PretokenCounts>> counts;
  std::mutex counts_mutex;
  ordered_parallel<TextBatch, int64_t>(
      threads, take,
      [&]() -> std::function<int64_t(TextBatch &&)> {
        const std::lock_guard lock(counts_mutex);
        PretokenCounts& mine = *counts.emplace_back(std::make_unique<PretokenCounts>());
        const auto documents = std::make_shared<DocumentReader>(corpus);
        return [&corpus, &pretokenizer, &mine, documents](TextBatch&& batch) {
          with_memory_for([&] { return place_of(corpus, batch.begin); },
                          [&] {
                            documents->documents_of(batch, [&](const Document& document) {
                              if (document.bad.empty() && !document.for_validation)
                                mine.count(pretokenizer, document.text);
                            });
                          });
          return batch.consumed;
        };
      },
      [&](int64_t&& consumed) { progress(consumed); });
  PretokenCounts all;
  for (auto& part : counts) all.add(std::move(*part));
  return make_bpe_tokenizer(train_bpe(all, vocab_size));
}

}  // namespace megalith
