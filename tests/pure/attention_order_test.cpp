// The order in which blocks of attention take the tiles of heads (kernels/attention/attention_order.h): each once, and
// how much of a GPU's time is lost to processors that have nothing left to do, or wait, on a model of an H100: 132
// processors, each with one block at a time, a step for every tile of the other side, and one more for what a block
// begins and ends with.
#include "kernels/attention/attention_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "kernels/stream/queue_cuda.h"

namespace megalith::test {
namespace {

using cuda::attention::head_order, cuda::attention::HeadOrder, cuda::attention::heads_in_l2,
    cuda::attention::heads_in_accumulators;

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
        // What the backward pass relies on: so many heads further on, all of a head comes later.
        if (head + order.at_once < heads) {
          EXPECT_LT(at.at({head, 0}), at.at({head + order.at_once, tiles - 1}));
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
// A block takes its tiles of queries from the diagonal on: each after the block with the keys behind its own, the first
// after the last block of the head that had its room.
double lost_backward(const HeadOrder& order, int64_t rooms) {
  std::map<std::pair<int64_t, int>, std::vector<int>> ends;  // of a block, by head and tile: of its tiles of queries
  return lost(order, last_end(order.blocks(), [&](int n, int begin) {
                const auto [head, own] = order.of(n);
                std::vector<int>& all = ends[{head, own}];
                int now = begin + 1;
                for (int i = own; i < order.tiles; i++) {
                  if (i == own && head >= rooms)
                    now = std::max(now, ends.at({head - rooms, 0}).at(static_cast<size_t>(i)));
                  if (i > own) now = std::max(now, ends.at({head, own + 1}).at(static_cast<size_t>(i - own - 1)));
                  all.push_back(++now);
                }
                return now;
              }));
}

struct Lost {
  int heads, positions, size;
  double forward_before, forward, backward_before, backward;
};
// As bench/results/attention_forward_counted.md has it. Before: forward one head after the other; backward half as many
// heads at once as there are rooms.
TEST(AttentionOrder, WhatEndsAndWaitsLose) {
  for (const Lost& row : std::vector<Lost>{{384, 1024, 64, 3.8, 0.8, 2.3, 3.0},
                                           {64, 1024, 64, 21.0, 3.0, 11.1, 11.1},
                                           {64, 2048, 64, 12.3, 1.7, 10.1, 10.1},
                                           {64, 4096, 64, 6.4, 0.5, 7.3, 6.7},
                                           {64, 8192, 64, 2.8, 0.2, 7.8, 3.1},
                                           {64, 1024, 128, 21.0, 3.0, 17.9, 21.0},
                                           {64, 2048, 128, 12.3, 3.0, 13.3, 12.3},
                                           {64, 4096, 128, 6.4, 1.3, 12.4, 7.0},
                                           {64, 8192, 128, 2.8, 0.0, 18.1, 3.6},
                                           {256, 2048, 128, 3.3, 0.4, 6.1, 3.3},
                                           {256, 8192, 128, 0.7, 0.0, 17.1, 0.9}}) {
    const int tiles = row.positions / 128, heads = row.heads;
    SCOPED_TRACE(testing::Message() << heads << " heads of " << row.size << ", " << row.positions << " positions");
    const int64_t room = int64_t{row.positions} * row.size * 4, flags = (heads * tiles + 1) * 4;
    const int64_t rooms = (cuda::workspace_bytes - (flags + 255) / 256 * 256) / room;
    EXPECT_NEAR(lost_forward(head_order(heads, tiles, 1)), row.forward_before, 0.05);
    EXPECT_NEAR(lost_forward(head_order(heads, tiles, heads_in_l2(row.positions, row.size))), row.forward, 0.05);
    EXPECT_NEAR(lost_backward(head_order(heads, tiles, (rooms + 1) / 2), rooms), row.backward_before, 0.05);
    EXPECT_NEAR(lost_backward(head_order(heads, tiles, heads_in_accumulators(heads, rooms)), rooms), row.backward,
                0.05);
  }
}

}  // namespace
}  // namespace megalith::test
