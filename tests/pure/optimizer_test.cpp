// Updates as the step makes them: clipped by the global norm, decayed where the spec says so, moments carried on.
// Against AdamW in doubles, parameter by parameter, from the gradients that the step itself computed.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/pure/small_run.h"
#include "trainer/step/learning_rate.h"

namespace megalith {
namespace {

struct Moments {
  double m = 0, v = 0;
};

class Updates : public testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Clip, Updates, testing::Values(0.0, 0.05, 100.0));

TEST_P(Updates, AreAdamWOfTheClippedGradient) {
  Config config = small_config();
  config.optimizer.gradient_clip = GetParam();
  config.optimizer.weight_decay = 0.3;
  config.optimizer.epsilon = 1e-4;  // so that gradients which are 0 by nature do not move weights by their rounding
  const OptimizerConfig& o = config.optimizer;
  SmallRun run(config);
  std::map<std::string, std::vector<Moments>> moments;
  for (int64_t s = 0; s < 4; s++) {
    std::vector<std::vector<float>> before;
    for (const Unit& unit : run.units()) before.push_back(values_of(unit.master()));
    const double norm = run.step(s).grad_norm;
    const double scale = o.gradient_clip > 0 ? std::min(1.0, o.gradient_clip / (norm + 1e-6)) : 1;
    EXPECT_EQ(scale < 1, GetParam() == 0.05) << "one of the three clips";
    const double lr = learning_rate_at(o, s), t = static_cast<double>(s + 1);
    for (size_t u = 0; u < run.units().size(); u++) {
      const Unit& unit = run.units()[u];
      const std::vector<float> after = values_of(unit.master()), gradient = values_of(unit.gradient());
      for (const PlacedParam& param : unit.plan().params) {
        std::vector<Moments>& state = moments[param.spec.name];
        state.resize(static_cast<size_t>(param.range().size()));
        const double decay = param.spec.shape.num_dims() >= 2 ? o.weight_decay : 0;
        for (size_t i = 0; i < state.size(); i++) {
          const size_t at = static_cast<size_t>(param.offset) + i;
          const double p = static_cast<double>(before[u][at]), g = scale * static_cast<double>(gradient[at]);
          auto& [m, v] = state[i];
          m = o.beta1 * m + (1 - o.beta1) * g;
          v = o.beta2 * v + (1 - o.beta2) * g * g;
          const double step = m / (1 - std::pow(o.beta1, t)) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.epsilon);
          ASSERT_NEAR(static_cast<double>(after[at]), p - lr * decay * p - lr * step, 1e-6 * (std::abs(p) + lr))
              << param.spec.name << " " << i << ", step " << s;
        }
      }
    }
  }
}

TEST(Updates, PaddingStaysZero) {
  for (double offloaded : {0.0, 1.0}) {
    Config config = small_config();
    config.optimizer.weight_decay = 0.3;
    config.memory.offload_optimizer = offloaded;
    SmallRun run(config);
    for (const Unit& unit : run.units()) std::fill_n(unit.master().data<float>(), unit.master().numel(), NAN);
    run.trainer.clear();
    for (const Unit& unit : run.units())
      for (float value : values_of(unit.master())) ASSERT_EQ(value, 0) << "before a checkpoint is read";
    run.trainer.initialize();
    run.steps(3);
    size_t padding = 0;
    for (const Unit& unit : run.units()) {
      const std::vector<float> master = values_of(unit.master());
      std::vector<bool> used(master.size(), false);
      for (const PlacedParam& param : unit.plan().params)
        for (int64_t i = param.range().begin; i < param.range().end; i++) used[static_cast<size_t>(i)] = true;
      for (size_t i = 0; i < used.size(); i++)
        if (!used[i]) {
          padding++;
          ASSERT_EQ(master[i], 0) << unit.plan().name << " at " << i;
        }
    }
    EXPECT_GT(padding, 0u);
  }
}

Config rounded_at_random() {
  Config config = small_config();
  config.precision.compute = ComputeType::bf16;
  config.precision.master = StorageType::bf16;
  config.precision.stochastic_rounding = true;
  config.optimizer.warmup_steps = 0;
  config.optimizer.decay = Decay::constant;
  config.optimizer.weight_decay = 30;
  return config;
}
// One update from gradients that are all alike, but for padding, which has none.
void update(SmallRun& run, int64_t step) {
  for (const Unit& unit : run.units()) {
    std::fill_n(unit.gradient().data<float>(), unit.gradient().numel(), 0.0f);
    for (const PlacedParam& param : unit.plan().params)
      for (const auto& [shard, local] : unit.shards_of(param, {0, unit.plan().numel}))
        std::fill_n(unit.gradient().data<float>() + local, shard.numel(), 0.01f);
  }
  double sums[] = {1, 1};
  run.update(step, {sums, DType::f64, {2}});
}

TEST(Updates, DrawAnewInEachStepAndForEachParameter) {
  const auto weights_after = [&](int64_t step) {
    SmallRun run(rounded_at_random());
    update(run, step);
    return values_of(run.units()[2].master());
  };
  const std::vector<float> weights = weights_after(0);
  EXPECT_EQ(weights_after(0), weights);
  EXPECT_NE(weights_after(1), weights);

  const SmallRun run(rounded_at_random());
  std::set<std::vector<float>> norms;
  for (const PlacedParam& param : run.plan.units[2].params)
    if (param.spec.name.ends_with(".weight") && param.spec.name.find(".ln_") != std::string::npos)
      norms.insert({weights.begin() + param.range().begin, weights.begin() + param.range().end});
  EXPECT_EQ(norms.size(), 2u) << "both began as ones";
}

TEST(Updates, RoundedAtRandomAreThoseOfFp32) {
  Config config = rounded_at_random();
  SmallRun narrow(config);
  config.precision.master = StorageType::fp32;
  config.precision.stochastic_rounding = false;
  SmallRun wide(config);
  for (size_t u = 0; u < wide.units().size(); u++) {
    const std::vector<float> weights = values_of(narrow.units()[u].master());
    std::copy(weights.begin(), weights.end(), wide.units()[u].master().data<float>());
  }
  update(narrow, 0);
  update(wide, 0);
  for (size_t u = 0; u < wide.units().size(); u++) {
    const std::vector<float> weights = values_of(narrow.units()[u].master()),
                             expected = values_of(wide.units()[u].master());
    for (const PlacedParam& param : wide.plan.units[u].params)
      for (auto i = static_cast<size_t>(param.range().begin); i < static_cast<size_t>(param.range().end); i++)
        ASSERT_NEAR(weights[i], expected[i], std::abs(expected[i]) / 128) << param.spec.name << " " << i;
  }
}

TEST(Updates, TheWorkingCopyIsTheMasterRounded) {
  Config config = small_config();
  config.precision.compute = ComputeType::bf16;
  SmallRun run(config);
  const auto expect_rounded = [&] {
    for (const Unit& unit : run.units())
      for (int64_t i = 0; i < unit.master().numel(); i++)
        ASSERT_EQ(unit.working().data<bfloat16>()[i].bits, bfloat16(unit.master().data<float>()[i]).bits);
  };
  expect_rounded();
  run.steps(2);
  expect_rounded();
  run.units()[1].master().data<float>()[5] = 3;
  run.trainer.weights_loaded();
  expect_rounded();
}

}  // namespace
}  // namespace megalith
