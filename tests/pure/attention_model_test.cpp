// The models of attention's passes on Hopper meet the measured times, the formulas of the plan are near the models, and
// the backward kernel's choices are near the best ones by its model.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/attention_backward_model.h"
#include "bench/attention_forward_model.h"

namespace megalith::test {
namespace {

using namespace bench;
using cuda::attention::backward_grid;

TEST(AttentionModel, MeetsWhatWasMeasured) {
  int forward = 0, backward = 0;
  for (const AttentionRow& row : attention_rows) {
    SCOPED_TRACE(row.name);
    if (row.forward > 0) {
      EXPECT_NEAR(forward_row_us(row, visit_us(row.size, Turns::softmax)) / row.forward, 1, 0.08);
      forward++;
    }
    if (row.backward > 0) {
      const BackwardPass pass = earlier_pass_of(row.shape());
      EXPECT_NEAR(visits_of(pass) * cuda::attention::backward_visit_us(row.size) / row.backward, 1, 0.08);
      backward++;
    }
  }
  EXPECT_EQ(forward, 10);
  EXPECT_EQ(backward, 12);
}

TEST(AttentionModel, VisitsTakeWhatThePlanSays) {
  for (int64_t size : {64, 80, 96, 112, 128}) {
    const double visits = 128.0 / cuda::attention::forward_keys(size) / cuda::attention::forward_sharing(size);
    EXPECT_NEAR(visit_us(size, Turns::products) * visits / cuda::attention::forward_visit_us(size), 1, 0.03) << size;
  }
  const double visit_64 = visit_us(64, Turns::products), visit_128 = visit_us(128, Turns::products);
  for (int64_t sequences : {1, 2, 4, 16})
    for (int64_t heads : {8, 12, 25, 32, 64})
      for (int64_t positions : {512, 1024, 2048, 4096, 8192, 16384}) {
        if (sequences * heads * positions > 1 << 20) continue;
        for (int64_t size : {64, 128}) {
          const AttentionRow row{"", sequences, heads, heads, positions, size};
          EXPECT_NEAR(cuda::attention::forward_us(row.shape()) / forward_row_us(row, size == 64 ? visit_64 : visit_128),
                      1, 0.1)
              << sequences << " sequences of " << positions << ", " << heads << " heads of " << size;
        }
      }
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
            const AttentionShape shape{heads, sequences * shared, positions, size};
            const BackwardPass pass = pass_of(shape);
            (pass.apart ? apart : together)++;
            EXPECT_LT(visits_of(pass), 1.11 * visits_of(other_pass_of(shape)))
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
      const auto grid = backward_grid({heads, shared, positions, 64});
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
