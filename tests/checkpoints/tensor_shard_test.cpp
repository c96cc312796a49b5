// Shards: the copy runs against a search over all pairs of elements, for every pair of shards of small tensors.
#include <map>

#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

// The global element behind each element of a shard's buffer.
std::vector<int64_t> elements_of(const TensorShard& p) {
  std::vector<int64_t> all;
  for (int64_t row = 0; row < p.rows(); row++)
    for (int64_t col = p.columns.begin; col < p.columns.end; col++) all.push_back(row * p.cols() + col);
  return {all.begin() + p.elements.begin, all.begin() + p.elements.end};
}

std::vector<TensorShard> all_shards(const std::vector<int64_t>& shape) {
  std::vector<TensorShard> shards;
  const TensorShard whole = whole_tensor("t", shape);
  for (int64_t a = 0; a < whole.cols(); a++)
    for (int64_t b = a + 1; b <= whole.cols(); b++)
      for (int64_t begin = 0; begin <= whole.rows() * (b - a); begin++)
        for (int64_t end = begin; end <= whole.rows() * (b - a); end++)
          shards.push_back({"t", shape, {a, b}, {begin, end}});
  return shards;
}

std::vector<CopyRun> brute_force(const std::vector<int64_t>& source, const std::vector<int64_t>& destination) {
  std::vector<CopyRun> runs;
  for (size_t d = 0; d < destination.size(); d++)
    for (size_t s = 0; s < source.size(); s++) {
      if (source[s] != destination[d]) continue;
      const auto from = static_cast<int64_t>(s), to = static_cast<int64_t>(d);
      if (!runs.empty() && runs.back().source + runs.back().length == from &&
          runs.back().destination + runs.back().length == to)
        runs.back().length++;
      else
        runs.push_back({from, to, 1});
    }
  return runs;
}

void check_all_pairs(const std::vector<int64_t>& shape) {
  const std::vector<TensorShard> shards = all_shards(shape);
  std::vector<std::vector<int64_t>> elements;
  for (const TensorShard& p : shards) elements.push_back(elements_of(p));
  int64_t wrong = 0;
  for (size_t s = 0; s < shards.size(); s++)
    for (size_t d = 0; d < shards.size(); d++) {
      const auto found = copy_runs(shards[s], shards[d]);
      const auto expected = brute_force(elements[s], elements[d]);
      if (found == expected) continue;
      if (wrong++ == 0) ADD_FAILURE() << describe(shards[s]) << " -> " << describe(shards[d]);
    }
  EXPECT_EQ(wrong, 0) << "of " << shards.size() * shards.size() << " pairs";
}

TEST(TensorShard, copy_runs_of_every_pair) {
  check_all_pairs({7});
  check_all_pairs({1, 4});
  check_all_pairs({4, 1});
  check_all_pairs({3, 3});
  check_all_pairs({4, 3});
  check_all_pairs({2, 2, 2});
  check_all_pairs({5, 4});
}

TEST(TensorShard, rows_are_all_but_the_last_dimension) {
  const TensorShard p = whole_tensor("t", {2, 3, 4});
  EXPECT_EQ(p.rows(), 6);
  EXPECT_EQ(p.cols(), 4);
  EXPECT_EQ(p.numel(), 24);
  EXPECT_EQ(whole_tensor("t", {5}).rows(), 1);
  EXPECT_EQ(flat_shard("t", {5}, {2, 4}).numel(), 2);
}

TEST(TensorShard, contradictions_are_refused) {
  const TensorShard good{"parameters/h.0.ln_1.bias", {4, 6}, {2, 4}, {1, 8}};
  check_shard(good);
  const auto refused = [&](auto change) {
    TensorShard p = good;
    change(p);
    EXPECT_THROW(check_shard(p), Error) << describe(p);
  };
  refused([](TensorShard& p) { p.columns.begin = -1; });
  refused([](TensorShard& p) { p.columns.end = 7; });
  refused([](TensorShard& p) { p.columns.begin = 4; });
  refused([](TensorShard& p) { p.elements.begin = -1; });
  refused([](TensorShard& p) { p.elements.end = 9; });
  refused([](TensorShard& p) { p.elements.begin = 9; });
  refused([](TensorShard& p) { p.shape = {}; });
  refused([](TensorShard& p) { p.shape = {0, 6}; });
  refused([](TensorShard& p) { p.shape = {int64_t{1} << 40, int64_t{1} << 40}; });
  for (const char* name : {"", "/a", "a/", "a//b", "a/../b", ".", "a#1", "a b", "\xc3\xa4"})
    refused([&](TensorShard& p) { p.name = name; });
  EXPECT_THROW(copy_runs(good, whole_tensor("other", {4, 6})), Error);
  EXPECT_THROW(copy_runs(good, whole_tensor(good.name, {6, 4})), Error);
}

TEST(Interval, gaps) {
  using Intervals = std::vector<Interval>;
  EXPECT_EQ(gaps({}, 3), (Intervals{{0, 3}}));
  EXPECT_EQ(gaps({}, 0), Intervals{});
  EXPECT_EQ(gaps({{2, 4}, {0, 1}, {3, 5}}, 7), (Intervals{{1, 2}, {5, 7}}));
  EXPECT_EQ(gaps({{0, 9}, {1, 2}}, 9), Intervals{});
}

}  // namespace
}  // namespace megalith
