// A source continues where it was, in whatever way its samples are cut since: within an epoch no token comes twice, and
// none is left out but what fills no sample.
#include "data/samples/source_course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "data/samples/indexed_dataset_writer.h"
#include "data/samples/loader.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::Scratch;

// Token i is i.
TokenStream counting(int64_t size) {
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenStream::of("counting", std::move(tokens), {});
}

struct Phase {
  int64_t tokens, length, samples;
  bool shuffle;
  uint64_t seed;
};

SampleCut cut_of(const Phase& p, bool masked = false) {
  return usual(
      {.tokens = p.tokens, .sequence_length = p.length, .masked = masked, .shuffle = p.shuffle, .seed = p.seed});
}

// Follows a run of these phases, and gives what each sample has to `see`.
void follow(const TokenStream& stream, const std::vector<Phase>& phases,
            const std::function<void(const Phase&, const Sample&, const std::vector<int32_t>& inputs,
                                     const std::vector<int32_t>& targets)>& see) {
  SourceCourse course(7);
  int64_t n = 0;
  for (const Phase& p : phases) {
    const TokenStream now = stream.first(p.tokens);
    course.cut(cut_of(p, stream.is_masked()), &now);
    Loader loader({now}, Blend({1}), p.length, p.shuffle, p.seed);
    loader.resume(n, {course});
    for (int64_t end = n + p.samples; n < end; n++) {
      std::vector<int32_t> inputs(static_cast<size_t>(p.length)), targets(inputs.size());
      loader.fill(n, 1, inputs, targets);
      see(p, loader.order().at(n), inputs, targets);
    }
    course.take(p.samples);
  }
}

TEST(SourceCourse, NoTokenComesTwiceInAnEpochAndNoneIsLeftOutButAtItsEnd) {
  for (unsigned seed = 0; seed < 300; seed++) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int64_t from, int64_t to) {
      return from + static_cast<int64_t>(random() % static_cast<unsigned>(to - from + 1));
    };
    std::vector<Phase> phases;
    int64_t tokens = draw(30, 90), length = draw(2, 9);
    bool shuffle = draw(0, 1) == 1;
    uint64_t order = 1;
    for (int64_t i = draw(2, 6); i > 0; i--) {
      if (draw(0, 2) == 0) tokens += draw(1, 40);
      if (draw(0, 2) == 0) length = draw(2, 9);
      if (draw(0, 3) == 0) shuffle = !shuffle;
      if (draw(0, 3) == 0) order++;
      phases.push_back({tokens, length, draw(0, 25), shuffle, order});
    }
    int64_t epoch = 0, longest = 0;  // longest: sequence of the epoch
    std::set<int32_t> seen;
    follow(counting(tokens), phases,
           [&](const Phase& p, const Sample& sample, const auto& inputs, const auto& targets) {
             if (sample.epoch != epoch) {
               ASSERT_EQ(sample.epoch, epoch + 1);
               ASSERT_GT(std::ssize(seen) + std::max(longest, p.length), phases.front().tokens - 1);
               epoch = sample.epoch;
               longest = 0;
               seen.clear();
             }
             longest = std::max(longest, p.length);
             for (size_t i = 0; i < inputs.size(); i++) {
               ASSERT_TRUE(seen.insert(inputs[i]).second) << "token " << inputs[i] << " again in epoch " << epoch;
               ASSERT_EQ(targets[i], inputs[i] + 1);
             }
           });
  }
}

// Whole epochs are exact: of N tokens all but the last, and a rest of fewer than a sample.
TEST(SourceCourse, TheRestOfAnEpochIsWholeButForItsEnd) {
  for (const bool shuffle : {false, true})
    for (const int64_t length : {3, 6, 8}) {
      std::vector<int> epochs;
      std::set<int32_t> first_epoch;
      follow(counting(81), {{81, 4, 7, shuffle, 1}, {81, length, 20, shuffle, 1}},
             [&](const Phase&, const Sample& sample, const auto& inputs, const auto&) {
               if (sample.epoch == 0) first_epoch.insert(inputs.begin(), inputs.end());
             });
      EXPECT_EQ(std::ssize(first_epoch), 28 + (80 - 28) / length * length) << length;
    }
}

TEST(SourceCourse, AnotherSeedOrdersWhatIsLeftAndAnotherBlendKeepsTheOrder) {
  const TokenStream stream = counting(101);
  SourceCourse course(0);
  course.cut(cut_of({101, 5, 0, true, 1}), nullptr);
  course.take(8);
  EXPECT_EQ(course.begin(), (SourceBegin{.key = 0, .epoch = 0, .taken = 8, .rest = 0}));
  course.cut(cut_of({101, 5, 0, true, 1}), nullptr);
  EXPECT_EQ(course.begin(), (SourceBegin{.key = 0, .epoch = 0, .taken = 8, .rest = 0}));
  course.cut(cut_of({101, 5, 0, true, 2}), nullptr);
  EXPECT_EQ(course.begin(), (SourceBegin{.key = 0, .epoch = 0, .taken = 0, .rest = 12}));
  course.take(12 + 20 + 3);
  EXPECT_EQ(course.begin(), (SourceBegin{.key = 0, .epoch = 2, .taken = 3, .rest = 0}));
  EXPECT_ERROR(course.cut(cut_of({100, 5, 0, true, 2}), nullptr), "had 101 tokens and now has 100");
}

// Examples of conversations: whole, each once an epoch.
TEST(SourceCourse, ExamplesArePackedAnew) {
  const Scratch scratch;
  std::mt19937 random(1);
  IndexedDatasetWriter writer(scratch.path("x"), 60000, std::numeric_limits<int32_t>::max(), {}, true);
  constexpr int examples = 60;
  int64_t half = 0, all = 0;
  for (int e = 0; e < examples; e++) {
    std::vector<int32_t> ids(2 + random() % 8, e + 1);
    writer.add(ids, std::vector<uint8_t>(ids.size(), 1));
    writer.end_document();
    all += std::ssize(ids);
    if (e < examples / 2) half = all;
  }
  writer.finish();
  const TokenStream stream = TokenStream::open(scratch.path("x.bin"));
  for (const bool shuffle : {false, true})
    for (const auto& phases : {std::vector<Phase>{{all, 10, 9, shuffle, 1}, {all, 20, 60, shuffle, 1}},
                               {{half, 12, 7, shuffle, 1}, {all, 12, 60, shuffle, 1}},
                               {{all, 16, 5, shuffle, 1}, {all, 16, 6, shuffle, 2}, {all, 9, 90, shuffle, 3}}}) {
      std::map<int64_t, std::map<int32_t, int64_t>> places;  // by epoch and example
      follow(stream, phases, [&](const Phase&, const Sample& sample, const auto& inputs, const auto&) {
        for (const int32_t token : inputs)
          if (token > 0) places[sample.epoch][token]++;
      });
      ASSERT_GE(places.size(), 3u);
      EXPECT_EQ(std::ssize(places[0]), examples) << "the epoch in which the change is";
      EXPECT_EQ(places[0], places[1]) << "and a whole one";
    }
}

}  // namespace
}  // namespace megalith
