// Fewer key-value heads than tensor-parallel ranks, so that each is on several: in-process on every rank, against one
// rank alone. What several ranks hold is the same bits on all of them, saved once, and gone on from in any layout.
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <sstream>

#include "checkpoints/reader.h"
#include "tests/checkpoints/helpers.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/checkpointer.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/planner/dry_run.h"
#include "trainer/session/single_rank.h"

namespace megalith {
namespace {

// Twelve heads, with all that can be beside them: biases of q, k and v, norms of q and k, turned positions.
Config model_of_heads(int64_t key_value_heads) {
  Config config = deep_model(4);
  config.model.layers = 4;
  config.model.heads = 12;
  config.model.head_size = 2;
  config.model.key_value_heads = key_value_heads;
  config.model.query_key_norm = true;
  config.model.positions = Positions::rotary;
  config.model.norm = NormKind::rms;
  config.checkpoint.directory = "unused";
  return config;
}

// Each way in which this many ranks share one, two or three heads.
std::vector<Config> layouts_of_heads() {
  std::vector<Config> all;
  const int ranks = session().size();
  size_t n = 0;
  for (int64_t heads : {1, 2, 3})
    for (int tensor : {2, 3, 4, 6})
      for (int pipeline : {1, 2}) {
        if (tensor <= heads || tensor % heads != 0 || ranks % (tensor * pipeline) != 0) continue;
        for (bool sequence : {false, true}) {
          Config c = model_of_heads(heads);
          c.parallel.tensor_parallel_degree = tensor;
          c.parallel.pipeline_parallel_degree = pipeline;
          c.parallel.sequence_parallel = sequence;
          c.parallel.virtual_stages = pipeline > 1 && sequence ? 2 : 1;
          c.parallel.sharding_strategy = std::array{ShardingStrategy::full_shard, ShardingStrategy::no_shard,
                                                    ShardingStrategy::shard_optimizer}[n++ % 3];
          all.push_back(c);
        }
      }
  return all;
}

// ElementsByPlace of weights or gradients that are here, by place in the whole.
using ElementsByPlace = std::map<std::pair<std::string, int64_t>, float>;
ElementsByPlace elements_of(SmallRun& run, Tensor (Unit::*shard)() const) {
  ElementsByPlace all;
  for (Unit& unit : run.units())
    for (const HeldShard& held : held_shards(unit, "", (unit.*shard)(), {0, unit.plan().numel})) {
      const std::vector<float> values = values_of(held.data);
      for (size_t i = 0; i < values.size(); i++)
        all[{held.shard.name,
             place_in_whole(columns_of(held.shard), held.shard.elements.begin + static_cast<int64_t>(i))}] = values[i];
    }
  return all;
}

// Collective. Returns how many elements several ranks hold, which must be the same bits on all of them; `whole` gets
// all that any rank holds.
int64_t expect_same_copies(const ElementsByPlace& mine, ElementsByPlace* whole = nullptr) {
  std::string text;
  for (const auto& [at, value] : mine)
    text += fmt::format("{} {} {}\n", at.first, at.second, std::bit_cast<uint32_t>(value));
  ElementsByPlace all;
  int64_t copies = 0;
  for (const std::string& theirs : session().all_gather_text(text)) {
    std::istringstream lines(theirs);
    std::string name;
    int64_t place = 0;
    uint32_t bits = 0;
    while (lines >> name >> place >> bits) {
      const auto [found, is_new] = all.emplace(std::pair{name, place}, std::bit_cast<float>(bits));
      EXPECT_EQ(std::bit_cast<uint32_t>(found->second), bits) << name << " " << place;
      copies += !is_new;
    }
  }
  if (whole) *whole = all;
  return copies;
}

TEST(KeyValueHeads, OnSeveralRanksFollowOneRankAlone) {
  std::map<int64_t, std::vector<StepScalars>> expected;
  std::map<int64_t, ElementsByPlace> weights, gradients;
  std::map<int64_t, double> evaluated;
  for (int64_t heads : {1, 2, 3}) {
    SmallRun alone(model_of_heads(heads));
    expected[heads] = alone.steps(3);
    evaluated[heads] = alone.evaluate(5);
    weights[heads] = elements_of(alone, &Unit::master);
    gradients[heads] = elements_of(alone, &Unit::gradient);
  }
  for (const Config& layout : layouts_of_heads()) {
    const int64_t heads = layout.model.kv_heads();
    SCOPED_TRACE(fmt::format("{} heads, {}", heads, described(layout)));
    SmallRun run = on_all_ranks(layout);
    follow(run, layout, expected[heads]);
    EXPECT_NEAR(run.evaluate(5), evaluated[heads], 1e-5 * evaluated[heads]);
    for (const auto& [shard, of_alone, tolerance] :
         {std::tuple(&Unit::master, &weights[heads], 1e-3), std::tuple(&Unit::gradient, &gradients[heads], 1e-4)}) {
      ElementsByPlace whole;
      EXPECT_GT(expect_same_copies(elements_of(run, shard), &whole), 0);
      ASSERT_EQ(whole.size(), of_alone->size());
      double difference = 0, norm = 0;
      for (const auto& [at, value] : *of_alone) {
        difference += std::pow(static_cast<double>(whole.at(at) - value), 2);
        norm += std::pow(static_cast<double>(value), 2);
      }
      EXPECT_LT(std::sqrt(difference / norm), tolerance);
    }
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
    const DryRun dry = dry_run(layout, session().size());
    EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
  }
}

// With state in bf16, rounded at random, and gradients that travel in bf16: copies stay alike all the same.
TEST(KeyValueHeads, StayAlikeInSixteenBits) {
  for (Config layout : layouts_of_heads()) {
    layout.precision.compute = ComputeType::bf16;
    layout.precision.gradient_reduce = layout.precision.master = layout.precision.moments = StorageType::bf16;
    layout.precision.stochastic_rounding = true;
    SCOPED_TRACE(fmt::format("{} heads, {}", layout.model.kv_heads(), described(layout)));
    SmallRun run = on_all_ranks(layout);
    run.steps(3);
    run.evaluate(5);
    EXPECT_GT(expect_same_copies(elements_of(run, &Unit::master)), 0);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  }
}

// Saved where ranks share heads, gone on from alone, and the other way round. The rows of the residual that a rank has,
// by which half of the layouts differ, are nothing that is saved.
TEST(KeyValueHeads, AreSavedOnceAndGoneOnFromInAnyLayout) {
  const test::TemporaryFolder mine;
  const std::string home = session().broadcast_text(mine.path());
  int number = 0;
  for (Config layout : layouts_of_heads()) {
    if (!layout.parallel.sequence_parallel) continue;
    SCOPED_TRACE(fmt::format("{} heads, {}", layout.model.kv_heads(), described(layout)));
    layout.checkpoint.directory = fmt::format("{}/{}", home, number++);
    Config one = model_of_heads(layout.model.kv_heads());
    one.checkpoint.directory = layout.checkpoint.directory + "_alone";
    SmallRun run = on_all_ranks(layout);
    for (int64_t s : {0, 1}) run.step(s);
    ElementsByPlace saved;
    expect_same_copies(elements_of(run, &Unit::master), &saved);
    const std::string path = Checkpointer(layout, session(), run.trainer).save({.step = 2, .sequences = 8}).path;
    if (session().rank() == 0) {
      EXPECT_TRUE(verify_checkpoint(path).damaged.empty());
      one.checkpoint.resume = path;
      SmallRun alone(one);
      ASSERT_TRUE(Resumer(one, SingleRank(), alone.trainer).resume());
      EXPECT_EQ(elements_of(alone, &Unit::master), saved);
      Checkpointer(one, SingleRank(), alone.trainer).save({.step = 3, .sequences = 12});
    }
    session().broadcast_text("saved");
    layout.checkpoint.resume = CheckpointStore(one.checkpoint.directory).path_of(3);
    SmallRun again = on_all_ranks(layout);
    ASSERT_TRUE(Resumer(layout, session(), again.trainer).resume());
    EXPECT_EQ(elements_of(again, &Unit::master), elements_of(run, &Unit::master));
    const StepScalars next = run.step(2), same = again.step(2);
    EXPECT_EQ(same.loss, next.loss);
    EXPECT_EQ(same.grad_norm, next.grad_norm);
    EXPECT_EQ(elements_of(again, &Unit::master), elements_of(run, &Unit::master));
  }
}

}  // namespace
}  // namespace megalith
