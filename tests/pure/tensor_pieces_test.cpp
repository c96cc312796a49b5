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
  return predict(config, hardware, dry_run_stages(config, hardware, num_ranks, false));
}

// Returns a recipe for GPUs, on its nodes of 8.
Config recipe_of(const std::string& name) {
  Config config = load_config(MEGALITH_SOURCE_DIR "/configs/" + name + ".toml");
  config.parallel.ranks_per_node = 8;
  config.run.device = Device::cuda;
  return config;
}

// Returns the seconds in which the slowest stage waits for tensor-parallel sums.
double exposed(const Prediction& p) { return at(p.line.breakdowns[p.slowest], Account::tensor_sums); }

// The number that is estimated without a dry run is nearly the best there is.
void expect_nearly_the_best(const Config& config, const Hardware& hardware, int num_ranks) {
  double best = predicted(config, hardware, num_ranks, 0).seconds;
  for (int64_t pieces : {1, 2, 3, 4, 8}) best = std::min(best, predicted(config, hardware, num_ranks, pieces).seconds);
  const int64_t estimated = best_tensor_pieces(config, hardware, num_ranks);
  EXPECT_LT(predicted(config, hardware, num_ranks, estimated).seconds, 1.015 * best) << "in " << estimated;
}

// Each recipe hides half of its sums.
TEST(TensorPieces, HideHalfOfTheSumsOfTheSetups) {
  for (const std::string name : {"10b_p4d", "30b_p4d", "60b_p4d"}) {
    SCOPED_TRACE(name);
    const Config config = recipe_of(name);
    const Hardware hardware = load_hardware(config.hardware.profile);
    const int num_ranks = static_cast<int>(8 * config.hardware.nodes);
    const Prediction whole = predicted(config, hardware, num_ranks, 0);
    EXPECT_NEAR(whole.line.tensor_sums[whole.slowest], exposed(whole), 1e-9) << "nothing hides them";
    const Prediction recipe = predicted(config, hardware, num_ranks, config.parallel.tensor_pieces);
    EXPECT_LT(exposed(recipe), 0.5 * exposed(whole)) << name;
    EXPECT_GE(recipe.line.tensor_sums[recipe.slowest], whole.line.tensor_sums[whole.slowest]) << "each waits anew";
    EXPECT_LT(recipe.seconds, 1.002 * whole.seconds) << name;
    expect_nearly_the_best(config, hardware, num_ranks);
  }
}

// Where the backward pass has two halves, the first has no gradients of weights to hide its sums: its products are cut.
TEST(TensorPieces, HideSumsOfHalves) {
  Config config = recipe_of("60b_p4d");
  const Hardware hardware = load_hardware(config.hardware.profile);
  config.parallel.pipeline_schedule = PipelineSchedule::zb_h1;
  config.parallel.active_microbatches = 0;
  config.memory.activation_checkpointing = {ActivationCheckpointing::Kind::selective};
  const Prediction whole = predicted(config, hardware, 256, 0), cut = predicted(config, hardware, 256, 3);
  EXPECT_LT(exposed(cut), 0.35 * exposed(whole));
  EXPECT_EQ(predicted(config, hardware, 256, 1).seconds, whole.seconds) << "there is nothing beside whole products";
  expect_nearly_the_best(config, hardware, 256);

  // In the fastest layout of this schedule, most of a transfer's time is its start, so that pieces cost more than they
  // hide. The gathers for gradients of weights are whole: three of a layer's twelve transfers, all of one size, are
  // beside products.
  config.parallel = {.tensor_parallel_degree = 4,
                     .sequence_parallel = true,
                     .pipeline_parallel_degree = 16,
                     .virtual_stages = 2,
                     .pipeline_schedule = PipelineSchedule::zb_h1,
                     .layers_per_stage = {},
                     .sharding_strategy = ShardingStrategy::shard_optimizer,
                     .ranks_per_node = 8};
  config.batch.microbatch_size = 8;
  const Prediction none = predicted(config, hardware, 256, 0), gathers = predicted(config, hardware, 256, 1);
  EXPECT_NEAR(exposed(gathers), 0.75 * exposed(none), 0.01 * exposed(none));
  EXPECT_LT(gathers.seconds, 0.985 * none.seconds);
  EXPECT_LT(exposed(predicted(config, hardware, 256, 2)), 0.65 * exposed(none));
  EXPECT_EQ(best_tensor_pieces(config, hardware, 256), 1);
  expect_nearly_the_best(config, hardware, 256);
}

// SwiGLU's first product is twice as wide as its features. Both layers are near the place where two pieces and one take
// equally long, one on each side of it, so that another width chooses wrongly for both.
TEST(TensorPieces, WeighTheWidthOfSwiglu) {
  Config config = recipe_of("60b_p4d");
  const Hardware hardware = load_hardware(config.hardware.profile);
  config.model.activation = Activation::swiglu;
  config.model.head_size = 128;
  config.batch.microbatch_size = 8;
  struct Layer {
    int degree;
    int64_t hidden, features, best;
  };
  for (const Layer layer : {Layer{8, 8192, 2 * 8192, 2}, Layer{4, 4096, 6 * 4096, 1}}) {
    SCOPED_TRACE(fmt::format("hidden {}", layer.hidden));
    config.model.hidden = layer.hidden;
    config.model.heads = layer.hidden / 128;
    config.model.feed_forward = layer.features;
    config.parallel = {.tensor_parallel_degree = layer.degree,
                       .pipeline_parallel_degree = 4,
                       .layers_per_stage = {},
                       .sharding_strategy = ShardingStrategy::shard_optimizer,
                       .ranks_per_node = 8};
    EXPECT_LT(predicted(config, hardware, 256, layer.best).seconds,
              predicted(config, hardware, 256, 3 - layer.best).seconds);
    EXPECT_EQ(best_tensor_pieces(config, hardware, 256), layer.best);
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
