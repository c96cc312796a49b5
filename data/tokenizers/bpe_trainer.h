// Trains a byte-level BPE: the most frequent pair of neighbours inside pre-tokens becomes a token, repeatedly
// (Sennrich, Haddow, Birch 2016, on bytes).
//
// Deterministic: of equally frequent pairs the one with the smaller left id comes first, then the smaller right id. In
// runs of one token, overlapping pairs each count. A pair whose bytes are already a token is skipped, so that ids and
// merges have the same order: 0..255 are the bytes (in GPT-2's order), 256.. the merges, the last is end_of_text.
// Memory: each distinct pre-token once while counting, and about 25 bytes per byte of them while training.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/pretokenizer.h"

namespace megalith {

// Counts pre-tokens. Each thread has its own; add() sums them. A pre-token longer than longest_pretoken counts as
// several.
class PretokenCounts {
 public:
  static constexpr size_t longest_pretoken = 1 << 20;

  void count(const Pretokenizer& pretokenizer, std::string_view text);
  void add(PretokenCounts&& other);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  using Map = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

  friend BpeVocabulary train_bpe(const PretokenCounts& counts, int32_t vocab_size);
  Map counts_;
};

// Errors: vocab_size is below smallest_trained_vocab, or the text yields fewer tokens.
BpeVocabulary train_bpe(const PretokenCounts& counts, int32_t vocab_size);

constexpr int32_t smallest_trained_vocab = 258;  // the bytes, one merge, end_of_text

}  // namespace megalith
