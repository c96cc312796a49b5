// Layers over stages: the greedy answer against all answers, known models, and what is refused.

#include "trainer/layout/stage_split.h"

#include <algorithm>
#include <numeric>

#include "tests/message_of.h"

namespace megalith {
namespace {

using Counts = std::vector<int64_t>;

double largest_load(const StageCosts& costs, const Counts& layers, const ChunkPlacement& placement) {
  std::vector<double> loads(static_cast<size_t>(placement.stages), 0);
  const auto load = [&](size_t chunk) -> double& {
    return loads[static_cast<size_t>(placement.stage_of(static_cast<int64_t>(chunk)))];
  };
  for (size_t c = 0; c < layers.size(); c++) load(c) += static_cast<double>(layers[c]);
  load(0) += costs.embedding;
  load(layers.size() - 1) += costs.head;
  return *std::max_element(loads.begin(), loads.end());
}

// The best of all ways to deal `left` layers to the chunks from `chunk` on.
double best(const StageCosts& costs, Counts& layers, size_t chunk, int64_t left, const ChunkPlacement& placement) {
  if (chunk + 1 == layers.size()) {
    layers[chunk] = left;
    return largest_load(costs, layers, placement);
  }
  double least = 1e9;
  const auto others = static_cast<int64_t>(layers.size() - chunk) - 1;
  for (layers[chunk] = 1; left - layers[chunk] >= others; layers[chunk]++)
    least = std::min(least, best(costs, layers, chunk + 1, left - layers[chunk], placement));
  return least;
}

TEST(StageSplit, NoOtherSplitIsBetter) {
  int compared = 0;
  for (int64_t stages = 1; stages <= 4; stages++)
    for (int64_t v = 1; v <= 3 && stages * v <= 6; v++)
      for (int64_t layers = stages * v; layers <= 11; layers++)
        for (const auto& [embedding, head] :
             {std::pair{0.0, 0.0}, {0.5, 0.7}, {1.33, 2.55}, {3.0, 0.0}, {0.0, 6.0}, {20.0, 20.0}})
          for (bool v_shaped : {false, true}) {
            if (v_shaped && v != 2) continue;
            const ChunkPlacement placement{stages, v, v_shaped};
            const StageCosts costs{.layers = layers, .embedding = embedding, .head = head};
            const Counts split = split_layers(costs, placement);
            ASSERT_EQ(split.size(), static_cast<size_t>(stages * v));
            EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
            EXPECT_GE(*std::min_element(split.begin(), split.end()), 1);
            Counts any(split.size());
            EXPECT_DOUBLE_EQ(largest_load(costs, split, placement), best(costs, any, 0, layers, placement))
                << stages << " stages, " << v << " chunks each, " << layers << " layers, head " << head;
            compared++;
          }
  EXPECT_GT(compared, 400);
}

TEST(StageSplit, EqualLoadsGoToTheLaterStageAndChunksStayEven) {
  const StageCosts bare{.layers = 10, .embedding = 0, .head = 0};
  EXPECT_EQ(split_layers(bare, {4, 1}), (Counts{2, 2, 3, 3}));
  EXPECT_EQ(split_layers(bare, {2, 2}), (Counts{2, 2, 3, 3}));
  EXPECT_EQ(split_layers(bare, {1, 1}), (Counts{10}));
  // The chunk with the head gets fewer layers than its stage's other one.
  EXPECT_EQ(split_layers({.layers = 12, .embedding = 0, .head = 2}, {2, 2}), (Counts{3, 3, 4, 2}));
}

TEST(StageSplit, CostsFollowTheLaw) {
  const ModelConfig model{.layers = 3, .hidden = 8, .heads = 2, .vocab = 100, .context = 16};
  const double layer_parameters = 12 * 64 + 13 * 8, layer_flops = 6 * (12 * 64) + 6 * 8 * 10;
  const StageCosts costs = stage_costs(model, 10);
  EXPECT_EQ(costs.layers, 3);
  EXPECT_DOUBLE_EQ(costs.embedding, 0.5 * (100 + 16) * 8 / layer_parameters);
  EXPECT_DOUBLE_EQ(costs.head, 0.5 * (6 * 800 / layer_flops + 800 / layer_parameters));
}

TEST(StageSplit, KnownModels) {
  // GPT-2 1558M: the head weighs two and a half layers, the embedding one and a third.
  const ModelConfig gpt2{.layers = 48, .hidden = 1600, .heads = 25, .vocab = 50257, .context = 1024};
  const StageCosts costs = stage_costs(gpt2, 1024);
  EXPECT_NEAR(costs.embedding, 1.33, 0.01);
  EXPECT_NEAR(costs.head, 2.55, 0.01);
  EXPECT_EQ(split_layers(costs, {4, 1}), (Counts{12, 13, 13, 10}));
  EXPECT_EQ(split_layers(costs, {8, 1}), (Counts{5, 6, 6, 6, 7, 7, 7, 4}));
  // 30B: both ends together weigh less than a layer.
  const ModelConfig large{.layers = 48, .hidden = 7168, .heads = 56, .vocab = 50257, .context = 2048};
  EXPECT_LT(stage_costs(large, 2048).head + stage_costs(large, 2048).embedding, 1);
  EXPECT_EQ(split_layers(stage_costs(large, 2048), {4, 1}), Counts(4, 12));
  EXPECT_EQ(split_layers(stage_costs(large, 2048), {8, 1}), Counts(8, 6));
  EXPECT_EQ(split_layers(stage_costs(large, 2048), {8, 2}), Counts(16, 3));
}

TEST(StageSplit, MoreChunksThanLayers) {
  EXPECT_EQ(message_of([] {
              split_layers({.layers = 12, .embedding = 1, .head = 1}, {8, 2});
            }),
            "12 layers for 16 chunks, and each needs one");
}

}  // namespace
}  // namespace megalith
