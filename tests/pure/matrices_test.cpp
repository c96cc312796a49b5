// Which matrices Muon orthogonalises, and how they are shared out.
#include "trainer/layout/matrices.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/pure/small_run.h"

namespace megalith {
namespace {

Config matrices_config() {
  Config config = small_config();
  config.model = {.layers = 6, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 16, .microbatch_size = 1};
  config.optimizer.algorithm = Algorithm::muon;
  return config;
}

using MatrixDims = std::pair<int64_t, int64_t>;
std::multiset<MatrixDims> matrix_shapes(const std::vector<Matrix>& matrices) {
  std::multiset<MatrixDims> shapes;
  for (const Matrix& m : matrices) shapes.emplace(m.rows, m.columns);
  return shapes;
}

TEST(Matrices, AreThoseOfTheLayersWithQueryKeyAndValueApart) {
  const Plan plan = make_plan(matrices_config(), 1, 0);
  for (size_t u = 0; u < plan.units.size(); u++) {
    const std::vector<Matrix> all = matrices_of(plan, u);
    if (!plan.is_layer(u)) {
      EXPECT_TRUE(all.empty()) << plan.units[u].name;
      continue;
    }
    EXPECT_EQ(matrix_shapes(all),
              (std::multiset<MatrixDims>{{12, 12}, {12, 12}, {12, 12}, {12, 12}, {48, 12}, {12, 48}}));
    for (const Matrix& m : all) {
      EXPECT_EQ(m.local.size(), m.rows * m.columns);
      EXPECT_EQ(intersect(m.local, plan.units[u].matrices), m.local);
    }
  }
  EXPECT_TRUE(rounds_of(make_plan(small_config(), 1, 0)).empty()) << "AdamW has none";
}

TEST(Matrices, OfSharedHeadsAndGatedFeaturesAreApartAsWell) {
  Config config = matrices_config();
  config.model.key_value_heads = 2;
  config.model.activation = Activation::swiglu;
  config.model.feed_forward = 20;
  const Plan plan = make_plan(config, 1, 0);
  EXPECT_EQ(matrix_shapes(matrices_of(plan, plan.chunks[0].first_unit)),
            (std::multiset<MatrixDims>{{12, 12}, {4, 12}, {4, 12}, {12, 12}, {20, 12}, {20, 12}, {12, 20}}));
}

// Three of six tensor-parallel ranks hold each of two key-value heads, and the same part of its matrices.
TEST(Matrices, OfHeadsThatSeveralRanksHoldHaveSeveralHolders) {
  Config config = matrices_config();
  config.model.key_value_heads = 2;
  config.parallel.tensor_parallel_degree = 6;
  const Plan plan = make_plan(config, 6, 0);
  int shared = 0;
  for (const Matrix& m : matrices_of(plan, plan.chunks[0].first_unit)) {
    const bool is_key_or_value = m.rows == 4;
    shared += is_key_or_value;
    EXPECT_EQ(m.holders, is_key_or_value ? 3 : 1) << m.rows;
    EXPECT_EQ(m.local.size(), m.rows * m.columns * m.holders / 6) << m.rows;
  }
  EXPECT_EQ(shared, 2);
}

// A matrix and its transpose take the same work, that of the products on its shorter side.
TEST(Matrices, WorkIsThatOfTheProducts) {
  const DType type = DType::f32;
  EXPECT_EQ((Matrix{.rows = 3, .columns = 7}.work(type)), 5 * (2 * 2.0 * 3 * 3 * 7 + 2.0 * 3 * 3 * 3));
  EXPECT_EQ((Matrix{.rows = 7, .columns = 3}.work(type)), (Matrix{.rows = 3, .columns = 7}.work(type)));
  // The lower half of the symmetric products, in two panels.
  EXPECT_EQ((Matrix{.rows = 256, .columns = 300}.work(type)),
            5 * (2.0 * 256 * 256 * 300 + 2.0 * (128 * 128 + 128 * 256) * (300 + 256)));
}

// On every rank of a stage the rounds are the same; each matrix has one owner, and the load is even.
TEST(Rounds, DealOutEveryMatrixOnceAndEvenly) {
  for (const auto& [ranks, tensor, pipeline] :
       {std::tuple{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {4, 2, 1}, {8, 2, 2}, {16, 2, 1}}) {
    Config config = matrices_config();
    config.model.layers = 12;
    config.parallel.tensor_parallel_degree = tensor;
    config.parallel.pipeline_parallel_degree = pipeline;
    SCOPED_TRACE(fmt::format("{} ranks, tensor {}, pipeline {}", ranks, tensor, pipeline));
    std::map<int, std::vector<Round>> by_stage;
    for (int rank = 0; rank < ranks; rank++) {
      const Plan plan = make_plan(config, ranks, rank);
      const std::vector<Round> rounds = rounds_of(plan);
      const auto [first, fresh] = by_stage.try_emplace(plan.mesh.coordinate(rank, Axis::pipeline), rounds);
      ASSERT_EQ(rounds.size(), first->second.size());
      std::set<size_t> units;
      for (size_t r = 0; r < rounds.size(); r++) {
        std::map<std::pair<int, int>, double> work;
        double all = 0, largest = 0;
        for (const size_t u : rounds[r].units) EXPECT_TRUE(units.insert(u).second);
        ASSERT_EQ(rounds[r].matrices.size(), 6 * rounds[r].units.size());
        for (size_t m = 0; m < rounds[r].matrices.size(); m++) {
          const Matrix &here = rounds[r].matrices[m], &there = first->second[r].matrices[m];
          EXPECT_EQ(std::tuple(here.unit, here.owner, here.tensor_owner, here.local.begin),
                    std::tuple(there.unit, there.owner, there.tensor_owner, there.local.begin));
          EXPECT_TRUE(0 <= here.owner && here.owner < plan.mesh.shard);
          EXPECT_TRUE(0 <= here.tensor_owner && here.tensor_owner < plan.mesh.tensor);
          work[{here.owner, here.tensor_owner}] += here.work(plan.direction);
          all += here.work(plan.direction);
          largest = std::max(largest, here.work(plan.direction));
          // Shards have all of a part between them.
          int64_t covered = 0;
          for (int64_t s = 0; s < plan.mesh.shard; s++) covered += here.in_shard(plan.units[here.unit], s).size();
          EXPECT_EQ(covered, here.local.size());
          EXPECT_EQ(here.local.size() * tensor, here.rows * here.columns);
        }
        for (const auto& [owner, load] : work) {
          EXPECT_LE(load, (work[{0, 0}])) << "the first rank has the most";
          EXPECT_LE(load, all / static_cast<double>(plan.mesh.shard * plan.mesh.tensor) + largest);
        }
      }
      EXPECT_EQ(units.size(), static_cast<size_t>(12 / pipeline));
    }
  }
}

}  // namespace
}  // namespace megalith
