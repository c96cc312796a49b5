#include "data/samples/loader.h"

#include <cstring>
#include <set>

#include "data/samples/permutation.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::Scratch;

// Token i is i.
TokenStream counting_stream(const Scratch& scratch, int64_t size) {
  std::vector<uint16_t> tokens;
  for (int64_t i = 0; i < size; i++) tokens.push_back(static_cast<uint16_t>(i));
  std::string bytes(tokens.size() * 2, '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return TokenStream::open(scratch.write("tokens.bin", bytes));
}

TEST(Permutation, EveryElementOnceAtEverySize) {
  for (int64_t size = 1; size < 300; size++)
    for (const uint64_t epoch : {0u, 1u, 7u}) {
      const Permutation permutation(size, 42, epoch);
      std::set<int64_t> seen;
      for (int64_t i = 0; i < size; i++) seen.insert(permutation(i));
      ASSERT_EQ(static_cast<int64_t>(seen.size()), size);
      ASSERT_EQ(*seen.begin(), 0);
      ASSERT_EQ(*seen.rbegin(), size - 1);
    }
  EXPECT_ERROR(Permutation(5, 0, 0)(5), "element 5", "of 5");
  EXPECT_ERROR(Permutation(0, 0, 0), "0 elements");
}

TEST(Permutation, ServesSizesOfTerabytes) {
  const int64_t size = (int64_t{1} << 40) + 12345;
  const Permutation permutation(size, 1, 2);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 10'000; i++) seen.insert(permutation(size - 1 - i));
  EXPECT_EQ(seen.size(), 10'000u);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), size);
}

// Where each element lands, over many epochs, is spread evenly: chi-squared of 9 cells, below its 0.1 % quantile.
TEST(Permutation, EpochsAndSeedsDrawEvenly) {
  constexpr int64_t size = 10;
  constexpr int draws = 20'000;
  for (int64_t element = 0; element < size; element++) {
    std::vector<int> landed(size);
    for (int draw = 0; draw < draws; draw++)
      landed[static_cast<size_t>(
          Permutation(size, static_cast<uint64_t>(draw % 100), static_cast<uint64_t>(draw / 100))(element))]++;
    double chi_squared = 0;
    for (const int n : landed) chi_squared += (n - draws / 10.0) * (n - draws / 10.0) / (draws / 10.0);
    EXPECT_LT(chi_squared, 27.88) << "element " << element;
  }
}

TEST(Loader, LedgerOfSeveralEpochs) {
  Scratch scratch;
  constexpr int64_t length = 4, epochs = 3;
  for (const int64_t samples : {1, 2, 3, 7, 64, 65, 1000})
    for (const int64_t extra : {1, 4})  // tokens beyond S * T; the last ones of a stream may belong to no sample
      for (const bool shuffle : {false, true}) {
        const Loader loader(counting_stream(scratch, samples * length + extra), length, shuffle, 11);
        ASSERT_EQ(loader.num_samples(), samples);
        for (int64_t epoch = 0; epoch < epochs; epoch++) {
          std::vector<int32_t> inputs(static_cast<size_t>(samples * length)), targets(inputs.size());
          loader.fill(epoch * samples, samples, inputs, targets);
          std::set<int32_t> ledger;
          for (int64_t row = 0; row < samples; row++) {
            const int32_t start = inputs[static_cast<size_t>(row * length)];
            ASSERT_EQ(start % length, 0);
            ledger.insert(start / static_cast<int32_t>(length));
            if (!shuffle) {
              ASSERT_EQ(start, row * length);
            }
            for (int64_t t = 0; t < length; t++) {
              ASSERT_EQ(inputs[static_cast<size_t>(row * length + t)], start + t);
              ASSERT_EQ(targets[static_cast<size_t>(row * length + t)], start + t + 1);
            }
          }
          ASSERT_EQ(static_cast<int64_t>(ledger.size()), samples) << "epoch " << epoch;
        }
      }
}

TEST(Loader, AnyDivisionReadsTheSame) {
  Scratch scratch;
  const Loader loader(counting_stream(scratch, 101), 5, true, 3);
  std::vector<int32_t> inputs(5 * 60), targets(5 * 60);
  loader.fill(7, 60, inputs, targets);  // over two ends of an epoch of 20
  for (int64_t i = 0; i < 60; i++) {
    std::vector<int32_t> one(5), next(5);
    loader.fill(7 + i, 1, one, next);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), inputs.begin() + 5 * i));
    EXPECT_TRUE(std::equal(next.begin(), next.end(), targets.begin() + 5 * i));
  }
}

TEST(Loader, EpochsAndSeedsDiffer) {
  Scratch scratch;
  const TokenStream stream = counting_stream(scratch, 401);
  const auto order = [&](uint64_t seed, int64_t epoch) {
    const Loader loader(stream, 4, true, seed);
    std::vector<std::string> samples;
    for (int64_t i = 0; i < 100; i++) samples.push_back(loader.name_of(epoch * 100 + i));
    return samples;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 1), order(2, 0));
}

TEST(Loader, RefusesTooFewTokens) {
  Scratch scratch;
  EXPECT_EQ(Loader(counting_stream(scratch, 9), 8, true, 0).num_samples(), 1);
  EXPECT_ERROR(Loader(counting_stream(scratch, 8), 8, true, 0), "has 8 tokens", "takes 9", "7 or less");
  EXPECT_ERROR(Loader(counting_stream(scratch, 8), 0, true, 0), "sequence length of 0");
  const Loader loader(counting_stream(scratch, 9), 8, true, 0);
  std::vector<int32_t> small(7), right(8);
  EXPECT_ERROR(loader.fill(0, 1, small, right), "7 inputs", "8 targets");
}

}  // namespace
}  // namespace megalith
