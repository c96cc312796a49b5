// Adapters and frozen parameters in layouts of every kind, against one rank alone.
#include <algorithm>
#include <cmath>

#include "configs/adapter.h"
#include "tests/long_tests.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

using Recomputed = ActivationCheckpointing::Kind;

// With dropout at the inputs of adapters, whose masks ranks have parts of, and, in a model of Llama's kind, adapters of
// some of q, k and v.
Config adapted(bool llama) {
  Config config = deep_model(6);
  if (llama) {
    ModelConfig& model = config.model;
    model.feed_forward = 18;
    model.norm = NormKind::rms;
    model.positions = Positions::rotary;
    model.activation = Activation::swiglu;
    model.bias = model.qkv_bias = model.tied_head = false;
    config.adapter.target_modules = "q_proj\nv_proj\no_proj\nup_proj\ndown_proj\n";
  }
  config.adapter.rank = 3;
  config.adapter.dropout = 0.2;
  return resolve(config);
}

Config frozen() {
  Config config = deep_model(6);
  config.train.freeze = "embeddings\nh.0.*\nh.3.attn.*\nnorms\n";
  return resolve(config);
}

// Layouts that this number of ranks allows: every axis, kind of sharding, of recomputation and of memory on the host.
std::vector<Config> layouts_of(const Config& model) {
  using enum ShardingStrategy;
  std::vector<Config> all;
  const auto add = [&](int tensor, int pipeline, ShardingStrategy strategy, int shards, const auto& change) {
    if (std::optional<Config> c = laid_out(model, tensor, pipeline, strategy, shards)) {
      change(*c);
      if (is_valid(*c)) all.push_back(*c);
    }
  };
  add(1, 1, full_shard, 0, [](Config&) {});
  add(2, 1, full_shard, 0, [](Config& c) { c.memory.activation_checkpointing = {Recomputed::selective}; });
  add(1, 2, no_shard, 0, [](Config& c) { c.memory.offload_optimizer = 1; });
  add(2, 1, shard_grad_op, 0, [](Config& c) { c.parallel.sequence_parallel = true; });
  add(1, 1, full_shard, 0, [](Config& c) {
    c.memory.activation_checkpointing = {Recomputed::each};
    c.memory.offload_activations = c.memory.offload_parameters = true;
    c.memory.offload_optimizer = 1;
  });
  if (!taken("Adapters.Layouts")) return all;
  add(2, 2, full_shard, 0, [](Config& c) { c.parallel.virtual_stages = 2; });
  add(1, 1, full_shard, 2, [](Config& c) { c.parallel.max_live_parameters = 10000; });
  add(1, 1, shard_optimizer, 2, [](Config& c) { c.parallel.replicate_below = 400; });
  add(3, 1, no_shard, 0, [](Config& c) { c.parallel.sequence_parallel = true; });
  add(6, 1, no_shard, 0, [](Config&) {});
  add(1, 4, no_shard, 0, [](Config& c) { c.parallel.pipeline_schedule = PipelineSchedule::gpipe; });
  add(2, 2, shard_grad_op, 0, [](Config& c) {
    c.parallel.sequence_parallel = true;
    c.memory.activation_checkpointing = {Recomputed::group, 3};
  });
  add(1, 2, full_shard, 2, [](Config& c) { c.memory.activation_checkpointing = {Recomputed::contiguous}; });
  return all;
}

class Trained : public testing::TestWithParam<const char*> {
 protected:
  static Config model() {
    const std::string what = GetParam();
    return what == "frozen" ? frozen() : adapted(what == "llama");
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, Trained, testing::Values("gpt2", "llama", "frozen"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Trained, FollowsOneRankAlone) {
  SmallRun alone(model());
  const Values before = weights_of(alone);
  const std::vector<StepScalars> expected = alone.steps(3);
  const double evaluated = alone.evaluate(7);
  const Values weights = weights_of(alone);
  for (const Config& layout : layouts_of(model())) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    follow(run, layout, expected);
    EXPECT_NEAR(run.evaluate(7), evaluated, 1e-5 * evaluated);
    EXPECT_LT(difference(run, weights), 1e-3);
    for (Unit& unit : run.units())
      if (unit.plan().frozen)
        for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel})) {
          const Columns columns = columns_of(held.shard);
          const std::vector<float>& whole = before.at(held.shard.name);
          for (int64_t i = 0; i < held.data.numel(); i++)
            ASSERT_EQ(held.data.data<float>()[i],
                      whole[static_cast<size_t>(place_in_whole(columns, held.shard.elements.begin + i))])
                << held.shard.name << " keeps its bits";
        }
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
    const DryRun dry = dry_run(layout, session().size());
    EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
    for (Channel channel : all_channels) EXPECT_EQ(run.runtime.mesh.channel(channel).copied(), 0) << name_of(channel);
  }
}

}  // namespace
}  // namespace megalith
