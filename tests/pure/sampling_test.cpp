// The choice of a token, and where a text stops.
#include "trainer/inference/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace megalith {
namespace {

// Probabilities 1/2, 1/4, 1/8, 1/8, in another order.
const std::vector<float> four_logits{std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};

std::set<int64_t> drawn(const Sampling& sampling) {
  std::set<int64_t> all;
  for (uint64_t token = 0; token < 400; token++) all.insert(choose(four_logits, sampling, 0, token));
  return all;
}

TEST(Sampling, TopPTakesTheFewestThatReachIt) {
  const auto with = [](double top_p, int64_t top_k = 0, double temperature = 1) {
    return drawn({.temperature = temperature, .top_k = top_k, .seed = 1, .top_p = top_p});
  };
  EXPECT_EQ(with(1), (std::set<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(with(0.4), (std::set<int64_t>{1}));
  EXPECT_EQ(with(0.6), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(with(0.8), (std::set<int64_t>{0, 1, 3})) << "of equals the first";
  EXPECT_EQ(with(1e-9), (std::set<int64_t>{1})) << "one at least";
  EXPECT_EQ(with(0.6, 1), (std::set<int64_t>{1}));
  EXPECT_EQ(with(0.7, 2), (std::set<int64_t>{1, 3})) << "2/3 of what top_k leaves is not enough";
  EXPECT_EQ(with(0.6, 2), (std::set<int64_t>{1})) << "and more than this";
  EXPECT_EQ(with(0.6, 0, 0.1), (std::set<int64_t>{1})) << "after temperature";
}

TEST(Sampling, SamplesHaveDrawsOfTheirOwn) {
  const Sampling sampling{.temperature = 1, .top_k = 0, .seed = 1};
  int differ = 0;
  for (uint64_t token = 0; token < 100; token++)
    differ += choose(four_logits, sampling, 0, token) != choose(four_logits, sampling, 1, token);
  EXPECT_GT(differ, 30);
}

std::string shown(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool stopped) {
  StoppingText text(stops);
  std::string all;
  for (const std::string& piece : pieces) all += text.add(piece) + "|";
  EXPECT_EQ(text.stopped(), stopped);
  return all + text.rest();
}

TEST(StoppingText, KeepsBackWhatMayBeTheBeginningOfAStop) {
  EXPECT_EQ(shown({}, {"ab", "c"}, false), "ab|c|");
  EXPECT_EQ(shown({"END"}, {"ab", "cE", "N", "Dx"}, true), "ab|c|||");
  EXPECT_EQ(shown({"END"}, {"abE", "NE", "ND"}, true), "ab|EN||");
  EXPECT_EQ(shown({"END"}, {"abE", "N"}, false), "ab||EN") << "nothing comes any more";
  EXPECT_EQ(shown({"aab"}, {"aaab"}, true), "a|");
  EXPECT_EQ(shown({"xy", "b"}, {"abxy"}, true), "a|") << "the first in the text, not in the list";
  EXPECT_EQ(shown({"abc", "bcd"}, {"ab", "x"}, false), "|abx|");
}

}  // namespace
}  // namespace megalith
