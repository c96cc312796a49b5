#include "data/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <map>

#include "data/tokenizers/tokenizer_json.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::random_text;

PretokenCounts counts_of(const std::string& text) {
  const Pretokenizer pretokenizer;
  PretokenCounts counts;
  counts.count(pretokenizer, text);
  return counts;
}

// The plain twin: count all pairs of all pieces again for each merge.
std::vector<std::pair<int32_t, int32_t>> plain_merges(const std::string& text, int32_t vocab_size) {
  const Pretokenizer pretokenizer;
  const auto order = bytes_in_gpt2_order();
  std::vector<std::string> tokens;
  std::array<int32_t, 256> byte_ids{};
  for (size_t i = 0; i < order.size(); i++) {
    byte_ids[order[i]] = static_cast<int32_t>(i);
    tokens.emplace_back(1, static_cast<char>(order[i]));
  }
  std::vector<std::vector<int32_t>> pieces;
  for (std::string_view left = text; !left.empty();) {
    const size_t length = pretokenizer.first_pretoken(left);
    std::vector<int32_t> ids;
    for (const char byte : left.substr(0, length)) ids.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    pieces.push_back(ids);
    left.remove_prefix(length);
  }
  std::vector<std::pair<int32_t, int32_t>> merges;
  while (static_cast<int32_t>(tokens.size()) < vocab_size - 1) {
    std::map<std::pair<int32_t, int32_t>, int64_t> count;
    for (const auto& ids : pieces)
      for (size_t i = 0; i + 1 < ids.size(); i++) count[{ids[i], ids[i + 1]}]++;
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    const auto bytes = [&](auto pair) {
      return tokens[static_cast<size_t>(pair.first)] + tokens[static_cast<size_t>(pair.second)];
    };
    for (const auto& [pair, n] : count)
      if (n > most && std::find(tokens.begin(), tokens.end(), bytes(pair)) == tokens.end()) {
        most = n;
        best = pair;
      }
    for (auto& ids : pieces)
      for (size_t i = 0; i + 1 < ids.size(); i++)
        if (ids[i] == best.first && ids[i + 1] == best.second) {
          ids[i] = static_cast<int32_t>(tokens.size());
          ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
    tokens.push_back(bytes(best));
    merges.push_back(best);
  }
  return merges;
}

TEST(BpeTrainer, EqualsItsDefinition) {
  for (unsigned seed = 0; seed < 6; seed++) {
    const std::string text = random_text(3000, seed) + std::string(50, 'a') + std::string(31, 'b');
    const int32_t vocab_size = 258 + 30 * static_cast<int32_t>(seed);
    const BpeVocabulary vocabulary = train_bpe(counts_of(text), vocab_size);
    std::vector<std::pair<int32_t, int32_t>> merges;
    for (const auto& merge : vocabulary.merges) merges.emplace_back(merge.left, merge.right);
    EXPECT_EQ(merges, plain_merges(text, vocab_size)) << "seed " << seed;
    EXPECT_EQ(static_cast<int32_t>(vocabulary.tokens.size()), vocab_size);
    EXPECT_EQ(vocabulary.end_of_text, vocab_size - 1);
  }
}

TEST(BpeTrainer, TiesGoToTheSmallerIds) {
  // "cd" and "ab" twice each; ids follow the bytes.
  const BpeVocabulary vocabulary = train_bpe(counts_of("cd!ab!cd!ab"), 259);
  EXPECT_EQ(vocabulary.tokens[256], "ab");
  EXPECT_EQ(vocabulary.tokens[257], "cd");
}

TEST(BpeTrainer, WhatItTrainedSurvivesTheDiskAndKeepsEveryByte) {
  const std::string text = random_text(20'000, 9);
  const auto trained = make_bpe_tokenizer(train_bpe(counts_of(text), 600));
  test::Scratch scratch;
  scratch.write("t/kept", "");
  trained->save(scratch.path("t"));
  const auto loaded = load_tokenizer(scratch.path("t"));
  std::vector<int32_t> ids, again;
  trained->encode(text, ids);
  loaded->encode(text, again);
  EXPECT_EQ(ids, again);
  EXPECT_EQ(loaded->decode(ids), text);
  EXPECT_EQ(loaded->vocab_size(), 600);
  EXPECT_LT(ids.size(), text.size() / 2);
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  EXPECT_ERROR(train_bpe(counts_of("abc"), 257), "257", "258");
  EXPECT_ERROR(train_bpe(counts_of("abc"), 300), "only 259 tokens, not 300", "train:259");
}

}  // namespace
}  // namespace megalith
