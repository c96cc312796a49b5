// How products are cut beside tensor-parallel sums, and what the planner finds of it.
#include "trainer/planner/tensor_pieces.h"

#include <gtest/gtest.h>

#include "trainer/parallel/edges.h"
#include "trainer/planner/prediction.h"

namespace megalith {
namespace {

TEST(TensorPieces, AreAllRowsInOrder) {
  for (int64_t rows : {1, 15, 16, 31, 48, 100, 128, 300, 1000, 20480})
    for (int64_t wanted : {0, 1, 2, 3, 8}) {
      SCOPED_TRACE(fmt::format("{} rows in {}", rows, wanted));
      const std::vector<Interval> pieces = pieces_of_rows(rows, wanted);
      EXPECT_LE(std::ssize(pieces), std::max<int64_t>(wanted, 1));
      int64_t end = 0;
      for (const Interval piece : pieces) {
        EXPECT_EQ(piece.begin, end);
        EXPECT_GE(piece.size(), std::min<int64_t>(rows, 16)) << "too little to be worth it";
        end = piece.end;
      }
      EXPECT_EQ(end, rows);
    }
  EXPECT_EQ(pieces_of_rows(20480, 3), (std::vector<Interval>{{0, 6912}, {6912, 13824}, {13824, 20480}}))
      << "whole tiles of 128 rows";
}

TEST(TensorPieces, OfRanksAreNeighbours) {
  EXPECT_EQ(pieces_of_ranks(8, 2048, 3), (std::vector<Interval>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(pieces_of_ranks(4, 2048, 8).size(), 4u) << "none is less than a rank's";
  EXPECT_EQ(pieces_of_ranks(4, 12, 4), (std::vector<Interval>{{0, 2}, {2, 4}})) << "12 rows are too few";
  EXPECT_EQ(pieces_of_ranks(2, 3, 2).size(), 1u);
  EXPECT_EQ(pieces_of_ranks(8, 2048, 0).size(), 1u);
}

Prediction predicted(Config config, const Hardware& hardware, int num_ranks, int64_t pieces) {
  config.parallel.tensor_pieces = pieces;
  return predict(config, hardware, dry_run_stages(config, hardware.stack, num_ranks, false));
}

// Each recipe hides half of its sums, and what is estimated without a dry run is nearly the best there is.
TEST(TensorPieces, HideHalfOfTheSumsOfTheSetups) {
  for (const std::string name : {"10b_p4d", "30b_p4d", "60b_p4d"}) {
    Config config = load_config(MEGALITH_SOURCE_DIR "/configs/" + name + ".toml");
    const Hardware hardware = load_hardware(config.hardware.profile);
    const int num_ranks = static_cast<int>(8 * config.hardware.nodes);
    config.parallel.ranks_per_node = 8;
    config.run.device = Device::cuda;
    const auto exposed = [](const Prediction& p) { return at(p.line.breakdowns[p.slowest], Account::tensor_sums); };
    const Prediction whole = predicted(config, hardware, num_ranks, 0);
    EXPECT_NEAR(whole.line.tensor_sums[whole.slowest], exposed(whole), 1e-9) << "nothing hides them";
    const Prediction recipe = predicted(config, hardware, num_ranks, config.parallel.tensor_pieces);
    EXPECT_LT(exposed(recipe), 0.5 * exposed(whole)) << name;
    EXPECT_GE(recipe.line.tensor_sums[recipe.slowest], whole.line.tensor_sums[whole.slowest]) << "each waits anew";
    EXPECT_LT(recipe.seconds, 1.002 * whole.seconds) << name;
    double best = whole.seconds;
    for (int64_t pieces : {1, 2, 3, 4, 8})
      best = std::min(best, predicted(config, hardware, num_ranks, pieces).seconds);
    const int64_t estimated = best_tensor_pieces(config, hardware, num_ranks);
    EXPECT_LT(predicted(config, hardware, num_ranks, estimated).seconds, 1.015 * best) << name << " in " << estimated;
  }
}

TEST(TensorPieces, AreNoneWhereNothingIsSummedOrCoresSum) {
  Config config = load_config(MEGALITH_SOURCE_DIR "/configs/10b_p4d.toml");
  Hardware hardware = load_hardware(config.hardware.profile);
  config.parallel.ranks_per_node = 8;
  EXPECT_GT(best_tensor_pieces(config, hardware, 128), 1);
  hardware.device.kind = DeviceKind::cpu;
  EXPECT_EQ(best_tensor_pieces(config, hardware, 128), 0);
  hardware.device.kind = DeviceKind::gpu;
  config.parallel.tensor_parallel_degree = 1;
  EXPECT_EQ(best_tensor_pieces(config, hardware, 128), 0);
}

}  // namespace
}  // namespace megalith
