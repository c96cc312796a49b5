// The order in which blocks of attention take the tiles of heads (kernels/attention/attention_order.h). Each tile is
// taken once. A model of an H100 gives the share of its time in which processors have nothing left to do in the forward
// pass: each of 132 processors has one block at a time, which takes a step for every tile of the other side, and one
// more for its begin and end.
#include "kernels/attention/attention_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <vector>

namespace megalith::test {
namespace {

using cuda::attention::head_order, cuda::attention::HeadOrder, cuda::attention::heads_in_l2;

TEST(AttentionOrder, EveryTileOnceAndTheLastOfGroupsFirst) {
  for (const auto& [heads, tiles, most] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 7, 3}, {7, 1, 3}, {7, 5, 3}, {12, 4, 4}, {12, 4, 100}, {132, 16, 43}}) {
    const HeadOrder order = head_order(heads, tiles, most);
    EXPECT_LE(order.at_once, most);
    EXPECT_EQ(order.blocks(), heads * tiles);
    std::map<std::pair<int, int>, int> at;  // of a tile of a head
    for (int block = 0; block < order.blocks(); block++) {
      const HeadOrder::Work work = order.of(block);
      EXPECT_TRUE(work.head >= 0 && work.head < heads && work.tile >= 0 && work.tile < tiles);
      EXPECT_TRUE(at.emplace(std::pair(work.head, work.tile), block).second);
    }
    for (int head = 0; head < heads; head++)
      for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
          EXPECT_LT(at.at({head, tile + 1}), at.at({head, tile}));
        }
      }
  }
}

// Blocks begin in their order, each on the processor that is free first; end_of(block, begin) is when it ends.
int last_end(int64_t blocks, const std::function<int(int block, int begin)>& end_of) {
  std::priority_queue<int, std::vector<int>, std::greater<>> free;
  for (int processor = 0; processor < 132; processor++) free.push(0);
  int last = 0;
  for (int block = 0; block < blocks; block++) {
    const int end = end_of(block, free.top());
    free.pop();
    free.push(end);
    last = std::max(last, end);
  }
  return last;
}
// Returns the share of the time of 132 processors in which they do not work, in percent.
double lost(const HeadOrder& order, int last_end) {
  const double work = order.heads * order.tiles * ((order.tiles + 1) / 2.0 + 1);
  return 100 * (1 - work / 132 / last_end);
}
double lost_forward(const HeadOrder& order) {
  return lost(order, last_end(order.blocks(), [&](int n, int begin) { return begin + order.of(n).tile + 2; }));
}
struct Lost {
  int heads, positions, size;
  double before, since;
};
// As bench/results/attention_forward_counted.md has it. Before: one head after the other.
TEST(AttentionOrder, WhatEndsLoseInTheForwardPass) {
  for (const Lost& row : std::vector<Lost>{{384, 1024, 64, 3.8, 0.8},
                                           {64, 1024, 64, 21.0, 3.0},
                                           {64, 2048, 64, 12.3, 1.7},
                                           {64, 4096, 64, 6.4, 0.5},
                                           {64, 8192, 64, 2.8, 0.2},
                                           {64, 1024, 128, 21.0, 3.0},
                                           {64, 2048, 128, 12.3, 3.0},
                                           {64, 4096, 128, 6.4, 1.3},
                                           {64, 8192, 128, 2.8, 0.0},
                                           {256, 2048, 128, 3.3, 0.4},
                                           {256, 8192, 128, 0.7, 0.0}}) {
    SCOPED_TRACE(testing::Message() << row.heads << " heads of " << row.size << ", " << row.positions << " positions");
    const int tiles = row.positions / 128;
    EXPECT_NEAR(lost_forward(head_order(row.heads, tiles, 1)), row.before, 0.05);
    EXPECT_NEAR(lost_forward(head_order(row.heads, tiles, heads_in_l2(row.positions, row.size))), row.since, 0.05);
  }
}

}  // namespace
}  // namespace megalith::test
