// Masked streams: the mask beside the tokens, and sequences of whole examples, packed by best fit or one each.
#include "data/samples/packs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "data/samples/indexed_dataset_writer.h"
#include "data/samples/loader.h"
#include "data/samples/sources.h"
#include "data/samples/windows.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using Ids = std::vector<int32_t>;
using test::Scratch;

// Examples of these lengths. Token i of example e is 100 e + i + 1, and counts where 3 divides i + e.
std::string write_examples(const Scratch& scratch, const std::string& name, const std::vector<int32_t>& lengths) {
  IndexedDatasetWriter writer(scratch.path(name), 60000, std::numeric_limits<int32_t>::max(), {}, true);
  for (size_t e = 0; e < lengths.size(); e++) {
    Ids ids(static_cast<size_t>(lengths[e]));
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(100 * e + 1));
    std::vector<uint8_t> counts;
    for (size_t i = 0; i < ids.size(); i++) counts.push_back(i > 0 && (i + e) % 3 == 0);
    writer.add(ids, counts);
    writer.end_document();
  }
  writer.finish();
  return scratch.path(name) + ".bin";
}

TEST(Packs, EveryExampleLiesWholeInOneSequence) {
  const Scratch scratch;
  std::mt19937 random(1);
  std::vector<int32_t> lengths;
  for (int i = 0; i < 300; i++) lengths.push_back(static_cast<int32_t>(1 + random() % 21));
  const TokenStream stream = TokenStream::open(write_examples(scratch, "x", lengths));
  ASSERT_TRUE(stream.is_masked());
  for (const bool pack : {true, false}) {
    const Packs packs(stream, 20, pack);
    std::set<int32_t> seen;
    int64_t places = 0, counted = 0;
    for (int64_t s = 0; s < packs.size(); s++) {
      Ids inputs(20), targets(20);
      packs.fill(s, inputs, targets);
      std::vector<int64_t> begins = packs.begins(s);
      begins.insert(begins.begin(), 0);
      begins.push_back(20);
      int64_t of_sequence = 0;
      for (size_t b = 0; b + 1 < begins.size(); b++) {
        const int32_t first = inputs[static_cast<size_t>(begins[b])], e = (first - 1) / 100;
        const int64_t size = begins[b + 1] - begins[b];
        if (first == 0) {  // padding
          EXPECT_EQ(size, 1);
          EXPECT_EQ(targets[static_cast<size_t>(begins[b])], -1);
          continue;
        }
        EXPECT_TRUE(seen.insert(e).second) << e;
        EXPECT_EQ(size, lengths[static_cast<size_t>(e)] - 1);
        places += size;
        for (int64_t i = 0; i < size; i++) {
          const auto at = static_cast<size_t>(begins[b] + i);
          EXPECT_EQ(inputs[at], 100 * e + i + 1);
          const bool counts = (i + 1 + e) % 3 == 0;
          EXPECT_EQ(targets[at], counts ? 100 * e + i + 2 : -1);
          of_sequence += counts;
        }
      }
      EXPECT_EQ(packs.counted(s), of_sequence);
      counted += of_sequence;
    }
    EXPECT_EQ(std::ssize(seen), std::ranges::count_if(lengths, [](int32_t n) { return n > 1; }));
    EXPECT_EQ(places, packs.places());
    if (pack)
      EXPECT_GT(static_cast<double>(places) / static_cast<double>(20 * packs.size()), 0.97);
    else
      EXPECT_EQ(packs.size(), std::ssize(seen));
    EXPECT_EQ(Windows({stream}, 20).targets(Windows({stream}, 20).size()), counted);
  }
}

TEST(Packs, BestFitIsAPureFunctionOfTheLengths) {
  const Scratch scratch;
  // 9, 5, 4, 3, 2 and 1 places into sequences of 10: 9+1, 5+4, 3+2 by size; in the file's order of first examples.
  const TokenStream stream = TokenStream::open(write_examples(scratch, "x", {4, 10, 2, 6, 3, 5}));
  const Packs packs(stream, 10, true);
  ASSERT_EQ(packs.size(), 3);
  std::vector<Ids> found;
  for (int64_t s = 0; s < 3; s++) {
    Ids inputs(10), targets(10);
    packs.fill(s, inputs, targets);
    found.push_back(inputs);
  }
  EXPECT_EQ(found[0], (Ids{1, 2, 3, 401, 402, 0, 0, 0, 0, 0}));
  EXPECT_EQ(found[1], (Ids{101, 102, 103, 104, 105, 106, 107, 108, 109, 201}));
  EXPECT_EQ(found[2], (Ids{301, 302, 303, 304, 305, 501, 502, 503, 504, 0}));
  EXPECT_EQ(packs.begins(0), (std::vector<int64_t>{3, 5, 6, 7, 8, 9}));
}

TEST(Packs, WhatDoesNotFitIsRefused) {
  const Scratch scratch;
  const std::string bin = write_examples(scratch, "x", {4, 12, 13});
  EXPECT_ERROR(Packs(TokenStream::open(bin), 10, true), "2 examples of more than 11 tokens", "the longest of 13",
               "batch.sequence_length=12");
  EXPECT_ERROR(Packs(TokenStream::open(write_examples(scratch, "y", {1, 1})), 10, true), "no example of two tokens");
  std::filesystem::copy_file(scratch.path("x.mask"), scratch.path("z.mask"));
  IndexedDatasetWriter plain(scratch.path("z"), 60000);
  plain.add(Ids(5, 1));
  plain.end_document();
  plain.finish();
  EXPECT_ERROR(TokenStream::open(scratch.path("z.bin")), "z.mask has 29 bytes", "lists 5 tokens");
  std::filesystem::remove(scratch.path("x.idx"));
  EXPECT_ERROR(TokenStream::open(bin), "x.mask", "no index");
}

TEST(Loader, BlendsMaskedAndOtherSources) {
  const Scratch scratch;
  const std::string masked = write_examples(scratch, "a", {4, 10, 2, 6});
  IndexedDatasetWriter plain(scratch.path("b"), 60000);
  plain.add(Ids(41, 7));
  plain.end_document();
  plain.finish();
  for (const char* name : {"a.lengths", "b.lengths"}) std::filesystem::remove(scratch.path(name));
  const Loader loader({TokenStream::open(masked), TokenStream::open(scratch.path("b.bin"))}, Blend({1, 1}), 10, false,
                      1);
  EXPECT_TRUE(loader.is_masked());
  EXPECT_EQ(loader.counted(0, 2), loader.packs(0)->counted(0) + 10);
  EXPECT_EQ(files_of("data.train", scratch.path("*")),
            (std::vector<std::string>{scratch.path("a.bin"), scratch.path("b.bin")}))
      << "a mask is no tokens";
  EXPECT_ERROR(TokenStream::open("both", {masked, scratch.path("b.bin")}), "has a mask", "has none");
}

}  // namespace
}  // namespace megalith
