// Every kind of parallelism, alone and together, in-process on every rank, against one rank alone.
#include <algorithm>
#include <cmath>

#include "tests/long_tests.h"
#include "tests/mpi/all_layouts.h"
#include "tests/mpi/late.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

Config model() { return deep_model(6); }

void with_state_in_bf16(Config& config) {
  config.precision.compute = ComputeType::bf16;
  config.precision.master = config.precision.moments = StorageType::bf16;
  config.precision.stochastic_rounding = true;
}

TEST(Layouts, FollowOneRankAlone) {
  SmallRun alone(model());
  const std::vector<StepScalars> expected = alone.steps(3);
  const double evaluated = alone.evaluate(7);
  const Values weights = weights_of(alone);
  for (const Config& layout : all_layouts(model(), session().size())) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    follow(run, layout, expected);
    EXPECT_NEAR(run.evaluate(7), evaluated, 1e-5 * evaluated);
    EXPECT_LT(difference(run, weights), 1e-3);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
    const DryRun dry = dry_run(layout, session().size());
    EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
    // Nothing is copied on the way to or from a transfer: parts are gathered in place and sums are taken in place.
    for (Channel channel : all_channels) EXPECT_EQ(run.runtime.mesh.channel(channel).copied(), 0) << name_of(channel);
  }
}

// A kind in each layout, in fp32 and bf16 by turns, and there with the optimizer's state in bf16 as well.
TEST(Layouts, WhatIsRecomputedOrOffloadedChangesNoBit) {
  const std::vector<MemoryConfig> kinds = kinds_of_memory();
  size_t turn = 0;
  for (Config layout : all_layouts(model(), session().size())) {
    layout.precision.compute = turn % 4 == 0 ? ComputeType::fp32 : ComputeType::bf16;
    if (turn % 4 == 2) with_state_in_bf16(layout);
    layout.memory = {};
    SmallRun kept = on_all_ranks(layout);
    layout.memory = kinds[1 + turn++ % (kinds.size() - 1)];
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    for (int64_t s : {0, 1}) {
      const StepScalars step = kept.step(s), same = run.step(s);
      EXPECT_EQ(same.loss, step.loss) << "step " << s;
      EXPECT_EQ(same.grad_norm, step.grad_norm) << "step " << s;
    }
    EXPECT_EQ(run.evaluate(7), kept.evaluate(7));
    EXPECT_EQ(weights_of(run), weights_of(kept));
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte, on device and host";
  }
}

// Rounding differs by layout, but little: bf16 keeps 8 bits, fp16 11, and a loss is a mean over 72 tokens. By turns.
TEST(Layouts, FollowInSixteenBits) {
  const auto in = [](Config config, bool fp16) {
    config.precision.compute = fp16 ? ComputeType::fp16 : ComputeType::bf16;
    return config;
  };
  SmallRun in_bf16(in(model(), false)), in_fp16(in(model(), true));
  const std::vector<StepScalars> alone[] = {in_bf16.steps(2), in_fp16.steps(2)};
  EXPECT_NEAR(alone[1][0].grad_norm, SmallRun(model()).step(0).grad_norm, 4.0 / 2048 * alone[1][0].grad_norm);
  bool fp16 = false;
  for (Config layout : all_layouts(model(), session().size())) {
    SCOPED_TRACE(described(layout));
    fp16 = !fp16;
    layout = in(layout, fp16);
    const std::vector<StepScalars>& expected = alone[fp16];
    const double digit = fp16 ? 1.0 / 2048 : 1.0 / 256;
    SmallRun run = on_all_ranks(layout);
    const std::vector<StepScalars> steps = run.steps(2);
    for (size_t s = 0; s < steps.size(); s++) {
      EXPECT_NEAR(steps[s].loss, expected[s].loss, digit * expected[s].loss) << "step " << s;
      EXPECT_NEAR(steps[s].grad_norm, expected[s].grad_norm, 4 * digit * expected[s].grad_norm) << "step " << s;
    }
    run.evaluate(7);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  }
}

// From the same gradients every layout makes the same weights and moments, to the last bit: the draws belong to the
// element of the whole parameter and to the step.
TEST(Layouts, RoundAtRandomAlike) {
  struct Element {
    int64_t place;  // in the whole tensor
    float value;
  };
  using Elements = std::map<std::string, std::vector<Element>>;
  const auto each_element = [](const HeldShard& held, const auto& use) {
    const Columns columns = columns_of(held.shard);
    for (int64_t i = 0; i < held.data.numel(); i++) use(i, place_in_whole(columns, held.shard.elements.begin + i));
  };
  const auto state_after_updates = [&](SmallRun& run) {
    double sums[] = {0.25, 1};
    for (int64_t step : {0, 1, 2}) {
      for (Unit& unit : run.units())
        for (const HeldShard& held : held_shards(unit, "", unit.gradient(), {0, unit.plan().numel}))
          each_element(held, [&](int64_t i, int64_t place) {
            held.data.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(place + 7 * step)));
          });
      run.update(step, {sums, DType::f64, {2}});
    }
    Elements state;
    const auto add = [&](const std::string& path, const Unit& unit, Tensor shard) {
      for (const HeldShard& held : held_shards(unit, path, shard, {0, unit.plan().numel})) {
        const std::vector<float> values = values_of(held.data);
        each_element(held, [&](int64_t i, int64_t place) {
          state[held.shard.name].push_back({place, values[static_cast<size_t>(i)]});
        });
      }
    };
    for (size_t u = 0; u < run.units().size(); u++) {
      add("", run.units()[u], run.units()[u].master());
      for (const Optimizer::StateTensors& moments : run.trainer.optimizer().state())
        add(moments.path, run.units()[u], moments.by_unit[u]);
    }
    return state;
  };
  Config config = model();
  with_state_in_bf16(config);
  SmallRun alone(config);
  Elements whole = state_after_updates(alone);
  for (auto& [name, elements] : whole)
    std::sort(elements.begin(), elements.end(), [](Element a, Element b) { return a.place < b.place; });
  for (Config layout : all_layouts(model(), session().size())) {
    SCOPED_TRACE(described(layout));
    with_state_in_bf16(layout);
    SmallRun run = on_all_ranks(layout);
    for (const auto& [name, elements] : state_after_updates(run)) {
      const std::vector<Element>& all = whole.at(name);
      for (const auto& [place, value] : elements)
        ASSERT_EQ(value, all[static_cast<size_t>(place)].value) << name << " " << place;
    }
  }
}

// Whatever is under way is left alone until it was waited for, in every layout.
TEST(Layouts, TouchNothingThatIsUnderWay) {
  SmallRun alone(model());
  const std::vector<StepScalars> expected = alone.steps(2);
  const double evaluated = alone.evaluate(7);
  for (const Config& layout : all_layouts(model(), session().size())) {
    SCOPED_TRACE(described(layout));
    LateCommunicator world(host_world(session()));
    SmallRun run(layout, Mesh(mesh_shape(layout, session().size()), world));
    const std::vector<StepScalars> steps = run.steps(2);
    for (size_t s = 0; s < steps.size(); s++) {
      EXPECT_NEAR(steps[s].loss, expected[s].loss, 1e-5 * expected[s].loss) << "step " << s;
      EXPECT_NEAR(steps[s].grad_norm, expected[s].grad_norm, 1e-4 * expected[s].grad_norm) << "step " << s;
    }
    EXPECT_NEAR(run.evaluate(7), evaluated, 1e-5 * evaluated);
  }
}

}  // namespace
}  // namespace megalith
