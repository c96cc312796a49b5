// Which steps are skipped, and when a run may go on: on one rank, where nothing but the numbers of a step decides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/pure/small_run.h"
#include "trainer/train/skipped_step.h"

namespace megalith {
namespace {

Config guarded(double above) {
  Config config = small_config();
  config.optimizer.learning_rate = 1e-4;  // so that norms stay much the same
  config.optimizer.decay = Decay::constant;
  config.train.skip_norm_above = above;
  return config;
}

// The step with what it shows under that name overwritten.
StepScalars step_with(SmallRun& run, int64_t s, const std::string& what, float value) {
  run.trainer.stage().observe([=](const std::string& name, int64_t, Tensor rows) {
    if (name == what) std::fill_n(rows.data<float>(), rows.numel(), value);
  });
  const StepScalars scalars = run.step(s);
  run.trainer.stage().observe({});
  return scalars;
}

std::vector<std::vector<float>> weights_of(SmallRun& run) {
  std::vector<std::vector<float>> all;
  for (Unit& unit : run.units()) all.push_back(values_of(unit.master()));
  return all;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t enough = UpdateState::enough;

TEST(SpikeGuard, SkipsANormFarAboveTheMedian) {
  SmallRun run(guarded(5));
  double largest = 0;
  for (int64_t s = 0; s < enough; s++) largest = std::max(largest, run.step(s).grad_norm);
  const auto before = weights_of(run);
  const StepScalars spike = step_with(run, enough, "d h.1", 1000);
  EXPECT_EQ(spike.decision, Decision::spike);
  EXPECT_GT(spike.grad_norm, 5 * largest);
  EXPECT_GT(spike.median, 0);
  EXPECT_LE(spike.median, largest);
  EXPECT_FALSE(spike.bad_unit);
  EXPECT_EQ(weights_of(run), before);
  // The spike is not among the norms that the next is held against.
  const StepScalars next = step_with(run, enough + 1, "d h.1", 1000);
  EXPECT_EQ(next.decision, Decision::spike);
  EXPECT_EQ(next.median, spike.median);
  EXPECT_EQ(run.step(enough + 2).decision, Decision::update);
  EXPECT_NE(weights_of(run), before);
}

TEST(SpikeGuard, NeedsNormsToHoldItAgainst) {
  SmallRun run(guarded(5));
  for (int64_t s = 0; s < enough - 1; s++) run.step(s);
  EXPECT_EQ(step_with(run, enough - 1, "d h.1", 1000).decision, Decision::update);
  EXPECT_EQ(step_with(run, enough, "d h.1", 1000).decision, Decision::spike);
}

TEST(SpikeGuard, IsOffByDefault) {
  SmallRun run(guarded(Config{}.train.skip_norm_above));
  for (int64_t s = 0; s < enough; s++) run.step(s);
  EXPECT_EQ(step_with(run, enough, "d h.1", 1000).decision, Decision::update);
}

TEST(BadSteps, AfterTooManyNothingIsUpdatedAnyMore) {
  SmallRun run(small_config());
  run.step(0);
  for (int64_t s : {1, 2}) EXPECT_EQ(step_with(run, s, "loss", not_a_number).decision, Decision::not_finite);
  EXPECT_EQ(run.step(3).decision, Decision::update) << "two in a row";
  for (int64_t s : {4, 5, 6}) EXPECT_EQ(step_with(run, s, "loss", not_a_number).decision, Decision::not_finite);
  const auto before = weights_of(run);
  EXPECT_EQ(run.step(7).decision, Decision::over) << "three in a row";
  EXPECT_EQ(weights_of(run), before);

  // A run that may skip fewer than were skipped before it was resumed is not over before it begins.
  Config strict = small_config();
  strict.train.max_bad_steps = 1;
  SmallRun resumed(strict);
  Optimizer& optimizer = resumed.trainer.optimizer();
  optimizer.restore(resumed.runtime.stream, {.updates = 1, .skipped = 2, .norms = {}});
  EXPECT_EQ(resumed.step(1).decision, Decision::update);
}

// More norms than there is room for: the oldest are forgotten.
TEST(History, KeepsTheLastNormsInTheirOrder) {
  SmallRun run(guarded(0));
  std::vector<double> norms;
  Optimizer& optimizer = run.trainer.optimizer();
  for (int64_t s = 0; s < UpdateState::window + 7; s++) {
    norms.push_back(run.step(s).grad_norm);
    if (s == 4) {  // what is restored is what was there
      const Optimizer::UpdateCounts history = optimizer.update_counts(run.runtime.stream);
      EXPECT_EQ(history.norms, norms);
      optimizer.initialize(run.runtime.stream);
      optimizer.restore(run.runtime.stream, history);
    }
  }
  const Optimizer::UpdateCounts history = optimizer.update_counts(run.runtime.stream);
  EXPECT_EQ(history.updates, UpdateState::window + 7);
  EXPECT_EQ(history.norms, std::vector<double>(norms.begin() + 7, norms.end()));
  optimizer.restore(run.runtime.stream, history);
  norms.push_back(run.step(UpdateState::window + 7).grad_norm);
  EXPECT_EQ(optimizer.update_counts(run.runtime.stream).norms, std::vector<double>(norms.begin() + 8, norms.end()));
}

TEST(SkippedStep, IsToldWithItsCause) {
  Config config = small_config();
  StepScalars scalars{.loss = not_a_number, .grad_norm = not_a_number, .decision = Decision::not_finite};
  scalars.bad_unit = 3;
  EXPECT_EQ(why_skipped(config, scalars),
            "the loss is nan and the gradient norm nan; the gradient is not finite from block 1 back");
  scalars = {.loss = std::numeric_limits<double>::infinity(), .grad_norm = 2, .decision = Decision::not_finite};
  EXPECT_EQ(why_skipped(config, scalars), "the loss is inf and the gradient norm 2; every unit's gradient is finite");
  config.train.skip_norm_above = 10;
  scalars = {.loss = 3, .grad_norm = 61.25, .decision = Decision::spike, .median = 0.5};
  EXPECT_EQ(why_skipped(config, scalars),
            "the gradient norm 61.25 is more than train.skip_norm_above = 10 times 0.5, the median");
}

TEST(SkippedStep, EveryLineSaysWhoSaysSo) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("the loss"), Lines{"all ranks: the loss"});
  EXPECT_EQ(lines_of("rank 0, 2: the loss"), Lines{"rank 0, 2: the loss"});
  EXPECT_EQ(lines_of("rank 0: a\nrank 1: b\nand 56 more"), (Lines{"rank 0: a", "rank 1: b", "and 56 more"}));
}

// Backward carries what is not finite from where it arises to all that comes before.
TEST(BadSteps, NameTheUnitWhereTheGradientWentWrong) {
  SmallRun run(small_config());
  const std::string block_0 = "; the gradient is not finite from block 0 back",
                    norm = "; the gradient is not finite from final norm back";
  const auto why = [&](int64_t s, const std::string& what) {
    return why_skipped(run.config, step_with(run, s, what, not_a_number));
  };
  EXPECT_TRUE(why(0, "d h.0").ends_with(block_0));
  EXPECT_TRUE(why(1, "h.2").ends_with(norm)) << "the loss is not finite";
}

}  // namespace
}  // namespace megalith
