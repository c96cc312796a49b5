// The model of attention's backward pass on Hopper meets the measured times, and the kernel's choices are near the best
// ones by this model.
#include "bench/attention_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megalith::test {
namespace {

using namespace bench;
using cuda::attention::backward_grid;

TEST(AttentionModel, MeetsWhatWasMeasured) {
  int measured = 0;
  for (const AttentionRow& row : attention_rows) {
    if (row.measured == 0) continue;
    SCOPED_TRACE(row.name);
    const AttentionPass pass =
        earlier_pass_of(row.sequences * row.heads, row.sequences * row.shared_heads, row.positions, row.size);
    EXPECT_NEAR(visits_of(pass) * cuda::attention::visit_us(row.size, true) / row.measured, 1, 0.08);
    measured++;
  }
  EXPECT_EQ(measured, 10);
}

// Whether the heads of a group are apart is decided by a formula. Where it errs, it loses little.
TEST(AttentionModel, TheChoiceIsNearTheBest) {
  int apart = 0, together = 0;
  for (int64_t sequences : {1, 2, 4, 16})
    for (int64_t members : {2, 4, 7, 8, 16})
      for (int64_t shared : {1, 2, 4, 8})
        for (int64_t positions : {512, 1024, 2048, 4096, 8192}) {
          const int64_t heads = sequences * shared * members;
          if (heads * positions > 1 << 19) continue;
          for (int64_t size : {64, 128}) {
            const AttentionPass pass = pass_of(heads, sequences * shared, positions, size);
            (pass.apart ? apart : together)++;
            EXPECT_LT(visits_of(pass), 1.11 * visits_of(other_pass_of(heads, sequences * shared, positions, size)))
                << sequences << " sequences of " << positions << ", " << shared << " x " << members << " heads of "
                << size;
          }
        }
  EXPECT_GT(apart, 20);
  EXPECT_GT(together, 20);
}

// Every key tile of every owner has its block. A block waits only for blocks with smaller tickets, which therefore run.
// The scratch memory has room for every index of the kernel.
TEST(AttentionModel, WhatBlocksWaitForHasStarted) {
  for (int64_t members : {1, 4, 7, 8, 16})
    for (int64_t positions : {1, 128, 1000, 8192}) {
      const int64_t shared = 3, heads = shared * members, tiles = (positions + 127) / 128;
      const auto grid = backward_grid(heads, shared, positions, 64);
      ASSERT_EQ(grid.order.blocks(), (grid.apart ? heads : shared) * tiles);
      std::vector<int64_t> ticket(static_cast<size_t>(grid.order.blocks()), -1);
      const auto of = [&](int64_t head, int64_t tile) -> int64_t& {
        return ticket[static_cast<size_t>(head * tiles + tile)];
      };
      for (int32_t i = 0; i < grid.order.blocks(); i++) {
        const auto [head, tile] = grid.order.of(i);
        of(head, tile) = i;
        if (tile + 1 < tiles) {
          EXPECT_TRUE(of(head, tile + 1) >= 0 && of(head, tile + 1) < i);
        }
        if (grid.apart && head % members > 0) {
          EXPECT_TRUE(of(head - 1, tile) >= 0 && of(head - 1, tile) < i);
        }
      }
      EXPECT_EQ(std::ranges::count(ticket, -1), 0);
      EXPECT_EQ(grid.dq, heads * tiles * 128 * 64);
      EXPECT_EQ(grid.dkv, grid.apart ? 2 * shared * tiles * 128 * 64 : 0);
      EXPECT_EQ(grid.flags, (heads + shared) * tiles + 1);
    }
}

}  // namespace
}  // namespace megalith::test
