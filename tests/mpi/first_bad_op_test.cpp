// The first op whose output is not finite is the same in every layout and on any number of ranks: the one that reads
// what was planted; and where nothing is planted there is none.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/long_tests.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/job/agreement.h"
#include "trainer/replay/first_bad_op.h"

namespace megalith {
namespace {

Config looked_at_model() {
  Config config = deep_model(12);
  config.batch.microbatch_size = 2;
  return config;
}

// Returns those that this number of ranks allows.
std::vector<Config> looked_at_layouts() {
  std::vector<Config> all;
  const auto add = [&](int tensor, int pipeline, ShardingStrategy strategy, auto change) {
    std::optional<Config> c = laid_out(looked_at_model(), tensor, pipeline, strategy);
    if (!c) return;
    change(*c);
    all.push_back(*c);
  };
  const auto as_it_is = [](Config&) {};
  using enum ShardingStrategy;
  add(1, 1, full_shard, as_it_is);
  add(1, 1, no_shard, [](Config& c) { c.batch.microbatch_size = 1; });
  add(2, 1, shard_grad_op, as_it_is);
  add(2, 1, full_shard, [](Config& c) { c.parallel.sequence_parallel = true; });
  add(1, 2, full_shard, [](Config& c) { c.parallel.virtual_stages = 2; });
  add(1, 2, shard_optimizer, [](Config& c) {
    c.parallel.pipeline_schedule = PipelineSchedule::gpipe;
    c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  });
  add(2, 2, full_shard,
      [](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::selective; });
  add(6, 1, full_shard, as_it_is);
  for (const PipelineSchedule schedule : schedules_in_halves) {  // each V is in one of the two
    if (schedule != PipelineSchedule::v_half)
      add(1, 2, full_shard, [=](Config& c) {
        c.parallel.pipeline_schedule = schedule;
        c.parallel.virtual_stages = 2;
        c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
      });
    if (schedule != PipelineSchedule::zb_v)
      add(2, 2, full_shard, [=](Config& c) {
        c.parallel.pipeline_schedule = schedule;
        c.parallel.virtual_stages = is_v_shaped(schedule) ? 2 : 1;
        c.parallel.sequence_parallel = true;
        c.parallel.tensor_pieces = 2;
      });
  }
  return all;
}

// Element `at` of the flattened parameter, wherever it is held.
void put_weight(SmallRun& run, const std::string& name, int64_t at, float value) {
  for (Unit& unit : run.units())
    for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel})) {
      const TensorShard& p = held.shard;
      const int64_t width = p.columns.size(), row = at / p.cols(), col = at % p.cols() - p.columns.begin,
                    here = row * width + col - p.elements.begin;
      if (p.name != name || col < 0 || col >= width || here < 0 || here >= p.numel()) continue;
      held.data.data<float>()[here] = value;
    }
  run.trainer.weights_loaded();
}

// All that this rank holds of a parameter.
void fill_weight(SmallRun& run, const std::string& name, float value) {
  for (Unit& unit : run.units())
    for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel}))
      if (held.shard.name == name) std::fill_n(held.data.data<float>(), held.data.numel(), value);
  run.trainer.weights_loaded();
}

// Gradients are large, and the inputs of the matrix so large that its own overflows; it is 0, and nothing else does.
void overflow_gradient_of_matrix(SmallRun& run) {
  fill_weight(run, "ln_f.weight", 1e15f);
  fill_weight(run, "h.5.ln_2.weight", 1e34f);
  fill_weight(run, "h.5.mlp.c_fc.weight", 0);
}
// The inputs of this matrix are 0, and it is so large that their gradient overflows.
void overflow_gradient_of_inputs(SmallRun& run) {
  fill_weight(run, "ln_f.weight", 1e15f);
  fill_weight(run, "h.5.ln_1.weight", 0);
  fill_weight(run, "h.5.attn.c_attn.weight", 1e37f);
}

struct Plant {
  std::string name;
  std::function<void(SmallRun&)> plant;
  std::string op, part;  // that are to be named; no op: none is
  int64_t sequence = 0;  // of the batch, in whose microbatch
};

constexpr float a_nan = std::numeric_limits<float>::quiet_NaN();

Plant in_weight(const std::string& name, const std::string& op, const std::string& part, float value = a_nan) {
  return {name, [=](SmallRun& run) { put_weight(run, name, 5, value); }, op, part};
}
// In what a step shows, in a row of the batch.
Plant in_shown_row(const std::string& what, int64_t row, const std::string& op, const std::string& part) {
  const auto plant = [=](SmallRun& run) {
    run.trainer.stage().observe([=](const std::string& name, int64_t first_row, Tensor rows) {
      if (name == what && first_row <= row && row < first_row + rows.rows())
        rows.rows(row - first_row, row - first_row + 1).data<float>()[0] = a_nan;
    });
  };
  return {what, plant, op, part, row / 12};
}

const std::vector<Plant>& plants() {
  static const std::vector<Plant> all = {
      {"nothing", [](SmallRun&) {}, "", ""},
      in_weight("wpe.weight", "embedding_forward", "the embedding"),
      in_weight("h.5.ln_1.weight", "layernorm_forward", "the forward pass of block 5"),
      in_weight("h.3.attn.c_attn.weight", "linear_forward", "the forward pass of block 3"),
      in_weight("h.3.attn.c_proj.bias", "residual_layernorm_forward", "the forward pass of block 3"),
      in_weight("h.7.mlp.c_fc.weight", "linear_gelu_forward", "the forward pass of block 7"),
      in_weight("h.0.mlp.c_proj.bias", "residual_forward", "the forward pass of block 0"),
      in_weight("ln_f.weight", "layernorm_forward", "the head and the loss"),
      // So large that it overflows where it is used.
      {"h.4.ln_2.weight",
       [](SmallRun& run) {
         for (int64_t i = 0; i < 12; i++) put_weight(run, "h.4.ln_2.weight", i, 3e38f);
       },
       "residual_layernorm_forward", "the forward pass of block 4"},
      in_shown_row("embedding", 5 * 12 + 7, "layernorm_forward", "the forward pass of block 0"),
      in_shown_row("h.6", 9 * 12, "layernorm_forward", "the forward pass of block 7"),
      in_shown_row("d h.3", 4 * 12 + 6, "residual_backward", "the backward pass of block 3"),
      {"gradient of a matrix", overflow_gradient_of_matrix, "linear_backward_weight", "the backward pass of block 5"},
      {"gradient of inputs", overflow_gradient_of_inputs, "linear_backward_input", "the backward pass of block 5"},
      // The matrix is before the inputs where a backward pass is whole, and behind them in two halves.
      {"gradients of both",
       [](SmallRun& run) {
         overflow_gradient_of_matrix(run);
         overflow_gradient_of_inputs(run);
       },
       "linear_backward_input", "the backward pass of block 5"},
  };
  return all;
}

// Returns the first that any rank has.
std::optional<BadOp> first_of_all(const std::optional<BadOp>& mine) {
  using Found = std::tuple<std::array<int64_t, 3>, std::string, std::string, int, int64_t, int64_t>;
  std::vector<Found> found;
  if (mine) found.emplace_back(mine->place, mine->op, mine->part, mine->rank, mine->values, mine->microbatch);
  std::optional<BadOp> first;
  for (const std::vector<Found>& theirs : of_all_ranks(session(), found))
    for (const auto& [place, op, part, rank, values, microbatch] : theirs)
      if (!first || place < first->place)
        first = {.place = place, .op = op, .part = part, .microbatch = microbatch, .rank = rank, .values = values};
  return first;
}

std::optional<BadOp> look_at_step(SmallRun& run, int64_t s) {
  FirstBadOp watcher(run.plan, run.runtime.stream);
  run.trainer.stage().follow([&](const Instruction* i) { watcher.follow(i); });
  run.runtime.stream.watch_ops(&watcher);
  run.step(s);
  run.runtime.stream.watch_ops(nullptr);
  return first_of_all(watcher.first());
}

TEST(FirstBadOp, IsTheOneThatReadsWhatWasPlanted) {
  for (const Config& layout : looked_at_layouts()) {
    SmallRun run = on_all_ranks(layout);
    const auto stride =
        session().size() > 4 ? static_cast<size_t>(taken("FirstBadOp.IsTheOneThatReadsWhatWasPlanted")) : 1;
    for (size_t p = 0; p < plants().size(); p += stride) {
      const Plant& plant = plants()[p];
      SCOPED_TRACE(described(layout) + ": " + plant.name);
      run.trainer.stage().observe({});
      run.trainer.initialize();
      plant.plant(run);
      const std::optional<BadOp> first = look_at_step(run, 0);
      ASSERT_EQ(first.has_value(), !plant.op.empty()) << (first ? first->op + " in " + first->part : "");
      if (!first) continue;
      EXPECT_EQ(first->op, plant.op);
      EXPECT_EQ(first->part, plant.part);
      EXPECT_GT(first->values, 0);
      const BatchPlan& batch = batch_plan(layout, run.plan.mesh, first->rank);
      const Interval sequences = batch.sequences(first->microbatch);
      EXPECT_LE(sequences.begin, plant.sequence);
      EXPECT_LT(plant.sequence, sequences.end);
    }
  }
}

// Where matrices have adapters, so are theirs: the product comes before what collects it.
TEST(FirstBadOp, IsTheProductOfAnAdaptersGradientUnderEverySchedule) {
  std::vector<PipelineSchedule> schedules{PipelineSchedule::one_f_one_b};
  schedules.insert(schedules.end(), std::begin(schedules_in_halves), std::end(schedules_in_halves));
  for (const PipelineSchedule schedule : schedules) {
    std::optional<Config> layout = laid_out(looked_at_model(), 1, 2, ShardingStrategy::full_shard);
    if (!layout) return;
    layout->parallel.pipeline_schedule = schedule;
    layout->parallel.virtual_stages = 2;
    layout->model.adapter.rank = 2;
    SCOPED_TRACE(described(*layout));
    SmallRun run = on_all_ranks(*layout);
    overflow_gradient_of_matrix(run);
    const std::optional<BadOp> first = look_at_step(run, 0);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->op, "linear_backward_weight");
    EXPECT_EQ(first->part, "the backward pass of block 5");
  }
}

// 16 bits cannot hold these: in fp16 a product above 65504, in bf16 one above 3.4e38.
TEST(FirstBadOp, NamesAnOverflow) {
  for (Config layout : looked_at_layouts())
    for (const ComputeType type : {ComputeType::fp16, ComputeType::bf16}) {
      layout.precision.compute = type;
      SCOPED_TRACE(described(layout));
      SmallRun run = on_all_ranks(layout);
      for (int64_t i = 0; i < 12; i++) put_weight(run, "h.2.ln_2.bias", i, type == ComputeType::fp16 ? 300 : 1e20f);
      for (int64_t i = 0; i < 12; i++)
        put_weight(run, "h.2.mlp.c_fc.weight", 5 * 12 + i, type == ComputeType::fp16 ? 300 : 1e20f);
      const std::optional<BadOp> first = look_at_step(run, 0);
      ASSERT_TRUE(first);
      EXPECT_EQ(first->op, "linear_gelu_forward");
      EXPECT_EQ(first->part, "the forward pass of block 2");
    }
}

}  // namespace
}  // namespace megalith
