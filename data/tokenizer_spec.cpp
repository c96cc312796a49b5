#include "data/tokenizer_spec.h"

#include <algorithm>
#include <charconv>

#include "data/bpe_tokenizer.h"
#include "data/bpe_trainer.h"
#include "data/ordered_parallel.h"
#include "kernels/base/check.h"

namespace megalith {

namespace {

constexpr std::string_view train_prefix = "train:";
constexpr int32_t largest_trained_vocab = 1 << 24;

// The texts themselves, or windows of them at equal distances.
std::vector<TextRange> sample_of(const std::vector<TextRange>& texts, const TrainingSample& sample) {
  int64_t total = 0;
  for (const TextRange& text : texts) total += text.size();
  if (total <= sample.sample_bytes) return texts;
  const int64_t num_windows = std::max<int64_t>(sample.sample_bytes / sample.window_bytes, 1);
  std::vector<TextRange> windows;
  int64_t text_begin = 0;  // of the current text, in all texts joined
  size_t text = 0;
  for (int64_t i = 0; i < num_windows; i++) {
    const int64_t begin = i * (total / num_windows);
    while (begin >= text_begin + texts[text].size()) text_begin += texts[text++].size();
    const int64_t from = texts[text].begin + (begin - text_begin);
    windows.push_back({texts[text].file, from, std::min(from + sample.window_bytes, texts[text].end)});
  }
  return windows;
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
  CHECK(
      error == std::errc() && stop == end && vocab >= smallest_trained_vocab && vocab <= largest_trained_vocab,
      "the tokenizer \"{}\" asks for no vocabulary that can be trained; give a number from {} to {}, as in train:4096",
      spec, smallest_trained_vocab, largest_trained_vocab);
  return vocab;
}

std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<TextRange>& texts, int32_t vocab_size, int threads,
                                           const TrainingSample& sample,
                                           const std::function<void(int64_t done, int64_t total)>& progress) {
  const Pretokenizer pretokenizer;
  const std::vector<TextRange> ranges = sample_of(texts, sample);
  int64_t done = 0, total = 0;
  for (const TextRange& range : ranges) total += range.size();
  TextWindows windows(ranges, sample.window_bytes, [&](std::string_view text) { return pretokenizer.last_cut(text); });

  std::vector<std::unique_ptr<PieceCounts>> counts;
  std::mutex counts_mutex;
  ordered_parallel<TextWindow, int64_t>(
      threads, [&](TextWindow& window) { return windows.next(window); },
      [&]() -> std::function<int64_t(TextWindow &&)> {
        const std::lock_guard lock(counts_mutex);
        PieceCounts& mine = *counts.emplace_back(std::make_unique<PieceCounts>());
        return [&pretokenizer, &mine](TextWindow&& window) {
          mine.count(pretokenizer, window.text);
          return static_cast<int64_t>(window.text.size());
        };
      },
      [&](int64_t&& bytes) { progress(done += bytes, total); });
  PieceCounts all;
  for (auto& part : counts) all.add(std::move(*part));
  return make_bpe_tokenizer(train_bpe(all, vocab_size));
}

}  // namespace megalith
