// The order of a blend: exact in any window, complete in any epoch, for any weights.
#include "data/samples/blend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "data/samples/loader.h"
#include "data/samples/sample_order.h"
#include "data/samples/sources.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::Scratch;

std::vector<size_t> sources_of(const Blend& blend, int64_t samples) {
  std::vector<size_t> sources;
  for (int64_t n = 0; n < samples; n++) sources.push_back(blend.at(n).source);
  return sources;
}

// The largest difference between a source's count in a window of consecutive samples and its share of them.
double worst_in_windows(const Blend& blend, int64_t window, int64_t samples) {
  const std::vector<size_t> sources = sources_of(blend, samples);
  double worst = 0;
  for (size_t i = 0; i < blend.shares().size(); i++) {
    const double share =
        static_cast<double>(window) * static_cast<double>(blend.shares()[i]) / static_cast<double>(blend.cycle());
    int64_t count = 0;
    for (int64_t n = 0; n < samples; n++) {
      count += sources[static_cast<size_t>(n)] == i;
      if (n >= window) count -= sources[static_cast<size_t>(n - window)] == i;
      if (n >= window - 1) worst = std::max(worst, std::abs(static_cast<double>(count) - share));
    }
  }
  return worst;
}

TEST(Blend, OneSourceIsEverySample) {
  const Blend blend({17});
  EXPECT_EQ(blend.cycle(), 1);
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 50}) EXPECT_EQ(blend.at(n), (Blend::Sample{0, n}));
}

TEST(Blend, AnyWindowHoldsEachSourcesShare) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 60; trial++) {
    std::vector<int64_t> shares;
    const size_t k = 2 + random() % 7;
    for (size_t i = 0; i < k; i++) shares.push_back(1 + static_cast<int64_t>(random() % (trial % 2 ? 1000 : 7)));
    const Blend blend(shares);
    const double bound = 2 - 1.0 / static_cast<double>(k - 1) + 1e-9;
    for (const int64_t window : {int64_t{1000}, int64_t{1}, int64_t{37}})
      EXPECT_LE(worst_in_windows(blend, window, 4000), bound) << fmt::format("{} sources, window {}", k, window);
  }
}

TEST(Blend, TwoSourcesAreWithinOne) {
  EXPECT_LE(worst_in_windows(Blend({7, 3}), 1000, 5000), 0);  // a cycle divides the window
  EXPECT_LE(worst_in_windows(Blend({123457, 76543}), 1000, 400'000), 1);
  EXPECT_LE(worst_in_windows(Blend({999'999, 1}), 1000, 2'100'000), 1);
}

TEST(Blend, SampleNIsAFunctionOfNAlone) {
  const Blend blend({5, 3, 2, 11});
  std::vector<int64_t> seen(4, 0);
  for (int64_t n = 0; n < 500; n++) {
    const Blend::Sample place = blend.at(n);
    EXPECT_EQ(place.before, seen[place.source]++);
    for (size_t i = 0; i < 4; i++) ASSERT_EQ(blend.count(i, n + 1), seen[i]);
  }
  EXPECT_EQ(blend.at((int64_t{1} << 40) * 21 + 6).before,
            (int64_t{1} << 40) * blend.shares()[blend.at(6).source] + blend.at(6).before);
}

// A run that goes on under a later version reads on where it stopped: the rule, not only its bound, stays.
TEST(Blend, TheOrderStays) {
  const auto cycle = [](const Blend& blend) {
    std::string order;
    for (const size_t source : sources_of(blend, blend.cycle())) order += static_cast<char>('a' + source);
    return order;
  };
  EXPECT_EQ(cycle(Blend({3, 1})), "aaba");
  EXPECT_EQ(cycle(Blend({5, 3, 2})), "abacabacba");
  EXPECT_EQ(cycle(Blend({2, 9, 4, 1, 6})), "bebcebabcebebcbedbaceb");
}

TEST(Blend, RefusesWhatItCannotPromise) {
  EXPECT_EQ(Blend({300, 700}).cycle(), 10);
  EXPECT_ERROR(Blend({1, Blend::longest_cycle}), "fewer digits");
  EXPECT_ERROR(Blend({1, 0}), "a share of 0");
  EXPECT_ERROR(Blend({}), "at least one source");
}

// Each sample of each source comes once an epoch of that source, whatever the weights.
TEST(SampleOrder, EpochsOfEverySourceAreExact) {
  for (const bool shuffle : {true, false}) {
    const SampleOrder order({13, 40, 1}, Blend({5, 3, 2}), shuffle, 9);
    std::map<std::pair<size_t, int64_t>, std::multiset<int64_t>> epochs;
    for (int64_t n = 0; n < 3000; n++) {
      const Sample sample = order.at(n);
      epochs[{sample.source, sample.epoch}].insert(sample.index);
    }
    for (size_t source = 0; source < 3; source++) {
      const auto size = static_cast<size_t>(order.sizes()[source]);
      const int64_t last = order.blend().count(source, 3000) / order.sizes()[source];
      EXPECT_GT(last, 5);
      for (int64_t epoch = 0; epoch < last; epoch++) {
        const auto& seen = epochs.at({source, epoch});
        EXPECT_EQ(seen.size(), size);
        EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), size);
        EXPECT_EQ(*seen.rbegin(), static_cast<int64_t>(size) - 1);
      }
    }
  }
}

TEST(SampleOrder, SourcesOfOneSizeAreDrawnApart) {
  const SampleOrder order({1000, 1000}, Blend({1, 1}), true, 3);
  int alike = 0;
  for (int64_t n = 0; n < 2000; n += 2) alike += order.at(n).index == order.at(n + 1).index;
  EXPECT_LT(alike, 20);
}

TEST(Sources, AListHasWeights) {
  const auto parse = [](const std::string& text) { return parse_sources("data.train", text); };
  ASSERT_EQ(parse("a file 2.bin").size(), 1u);
  EXPECT_EQ(parse("a file 2.bin")[0].name, "a file 2.bin");  // no list, no weight
  const auto two = parse("wiki/*.bin 0.7\n my code.bin   0.3\n");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].name, "wiki/*.bin");
  EXPECT_EQ(two[1].name, "my code.bin");
  EXPECT_EQ(two[0].share, 7);
  EXPECT_EQ(two[1].share, 3);
  EXPECT_EQ(parse("a 3\nb 1.5\n")[0].share, 2);
  for (const char* wrong : {"a\n", "a 0\n", "a -1\n", "a 0.3x\n", "a 1e3\n", "a .\n", "a 1.0000000001\n"})
    EXPECT_ERROR(parse(wrong), "data.train", "no weight", "NAME 0.3");
  EXPECT_ERROR(parse(" 0.5\n"), "has no source");
  EXPECT_ERROR(parse("a 1\na 2\n"), "names a twice");
}

TEST(Sources, AreFilesPrefixesAndGlobs) {
  const Scratch scratch;
  const auto touch = [&](const char* name) { scratch.write(name, "xx"); };
  const auto names = [&](const std::string& source) {
    std::string found;
    for (const std::string& path : files_of("data.train", scratch.path(source)))
      found += path.substr(scratch.path("").size()) + " ";
    return found;
  };
  for (const char* name : {"one.bin", "one.idx", "s-00001.bin", "s-00000.bin", "s-00000.idx", "s-0.bin", "d/x.bin",
                           "gap-00000.bin", "gap-00002.bin", "both.bin", "both-00000.bin", "odd[1].bin"})
    touch(name);
  EXPECT_EQ(names("one.bin"), "one.bin ");
  EXPECT_EQ(names("one"), "one.bin ");
  EXPECT_EQ(names("s"), "s-00000.bin s-00001.bin ");
  EXPECT_EQ(names("s-*"), "s-0.bin s-00000.bin s-00001.bin ");  // no .idx
  EXPECT_EQ(names("*/x.bin"), "d/x.bin ");
  EXPECT_EQ(names("odd[1].bin"), "odd[1].bin ");  // a file before a glob
  EXPECT_ERROR(names("absent"), "No such file", "absent-00000.bin");
  EXPECT_ERROR(names("*.tokens"), "matches no file");
  EXPECT_ERROR(names("d"), "is a folder", "d/*.bin");
  touch("d/train.bin");
  EXPECT_EQ(names("d"), "d/train.bin ") << "a folder of prepare means its training tokens";
  EXPECT_ERROR(names("gap"), "gap-00001.bin is missing");
  EXPECT_ERROR(names("both"), "both.bin or 1 shards", "both-*.bin");
}

std::string counting(int from, int to) {
  std::string bytes;
  for (int i = from; i < to; i++) bytes += {static_cast<char>(i & 0xff), static_cast<char>(i >> 8)};
  return bytes;
}

// Shards are one stream: samples that end in the next file, and none lost between them.
TEST(Sources, ShardsTrainAsTheFileThatTheyAreCutFrom) {
  const Scratch scratch;
  scratch.write("whole.bin", counting(0, 103));
  scratch.write("s-00000.bin", counting(0, 7));
  scratch.write("s-00001.bin", counting(7, 8));
  scratch.write("s-00002.bin", counting(8, 103));
  const auto load = [&](const char* name) {
    const std::string path = scratch.path(name);
    return Loader(TokenStream::open(path, files_of("data.train", path)), 5, true, 3);
  };
  const Loader whole = load("whole"), shards = load("s");
  ASSERT_EQ(shards.num_samples(), whole.num_samples());
  EXPECT_EQ(shards.streams()[0].files().size(), 3u);
  std::vector<int32_t> a(50), b(50), c(50), d(50);
  for (int64_t first = 0; first < 60; first += 10) {
    whole.fill(first, 10, a, b);
    shards.fill(first, 10, c, d);
    EXPECT_EQ(a, c);
    EXPECT_EQ(b, d);
  }
  EXPECT_EQ(shards.streams()[0].max_token(5, 9), 8);
}

TEST(Loader, ABlendReadsItsSources) {
  const Scratch scratch;
  const auto stream = [&](const char* name, int from, int to) {
    return TokenStream::open(scratch.write(name, counting(from, to)));
  };
  const Loader loader({stream("a.bin", 0, 101), stream("b.bin", 1000, 1101)}, Blend({3, 1}), 10, true, 1);
  EXPECT_EQ(loader.num_samples(), 20);
  std::vector<int32_t> inputs(10), targets(10);
  int of_b = 0;
  for (int64_t n = 0; n < 40; n++) {
    loader.fill(n, 1, inputs, targets);
    const Sample sample = loader.order().at(n);
    EXPECT_EQ(inputs[0], static_cast<int32_t>(sample.source) * 1000 + 10 * static_cast<int32_t>(sample.index));
    of_b += inputs[0] >= 1000;
  }
  EXPECT_EQ(of_b, 10);
  EXPECT_NE(loader.name_of(0).find(".bin)"), std::string::npos) << loader.name_of(0);
}

}  // namespace
}  // namespace megalith
