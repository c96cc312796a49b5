// A residual stream in fp32 between branches in bf16, on every rank: as rehearsed to the byte, the same bits twice, and
// what it spares a deep model's gradient.
#include <cmath>

#include "tests/mpi/on_all_ranks.h"

namespace megalith {
namespace {

Config deep_config() {
  Config config = small_config();
  config.model = {.layers = 24, .hidden = 32, .heads = 4, .vocab = 64, .context = 16};
  config.batch = {.sequence_length = 16, .global_batch_size = 8, .microbatch_size = 1};
  config.precision.compute = ComputeType::bf16;
  config.precision.residual = ResidualType::fp32;
  return config;
}

// With what keeps, sends, recomputes or moves the stream.
std::vector<Config> layouts_of_residuals() {
  std::vector<Config> all;
  const auto add = [&](auto&& change) {
    all.push_back(deep_config());
    change(all.back());
  };
  const int ranks = session().size();
  add([](Config&) {});
  add([](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::selective; });
  add([](Config& c) {
    c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
    c.memory.offload_activations = true;
    c.model.dropout = 0.1;
  });
  add([](Config& c) {
    c.model.norm = NormKind::rms;
    c.model.positions = Positions::rotary;
    c.model.parallel_residual = true;
    c.model.bias = c.model.qkv_bias = false;
  });
  if (ranks == 1) return all;
  if (24 % ranks == 0) add([=](Config& c) { c.parallel.pipeline_parallel_degree = ranks; });
  if (ranks % 2 != 0) return all;
  add([](Config& c) { c.parallel.tensor_parallel_degree = 2; });
  add([](Config& c) {
    c.parallel.tensor_parallel_degree = 2;
    c.parallel.sequence_parallel = true;
    c.model.dropout = 0.1;
  });
  return all;
}

TEST(Residual, IsTheSameBitsTwiceAndAsRehearsed) {
  for (const Config& layout : layouts_of_residuals()) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout), again = on_all_ranks(layout);
    run.runtime.stream.trace().keep(TraceLevel::everything);
    for (int64_t s : {0, 1}) {
      const StepScalars expected = run.step(s), found = again.step(s);
      if (s == 0) {
        EXPECT_EQ(run.runtime.stream.trace().events(), rehearse(layout, run.plan, TraceLevel::everything).trace);
      }
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.grad_norm, expected.grad_norm);
    }
    EXPECT_EQ(weights_of(again), weights_of(run));
    run.evaluate(3);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  }
}

// Sums over all elements of this rank's parameters.
struct Difference {
  double error = 0, size = 0;
  double relative() const { return std::sqrt(error / size); }
};
Difference difference(const Values& a, const Values& b) {
  Difference sums;
  for (const auto& [name, values] : b)
    for (size_t i = 0; i < values.size(); i++) {
      const auto x = static_cast<double>(a.at(name)[i]), y = static_cast<double>(values[i]);
      sums.error += (x - y) * (x - y);
      sums.size += y * y;
    }
  return sums;
}

// A stream in bf16 is rounded twice a layer, and so is its gradient.
TEST(Residual, HoldsTheGradientOfADeepModelCloser) {
  for (const Config& layout : layouts_of_residuals()) {
    SCOPED_TRACE(described(layout));
    Config exact_layout = layout, rounded_layout = layout;
    exact_layout.precision.compute = ComputeType::fp32;
    rounded_layout.precision.residual = ResidualType::compute;
    SmallRun exact = on_all_ranks(exact_layout), run = on_all_ranks(layout), rounded = on_all_ranks(rounded_layout);
    for (SmallRun* each : {&exact, &run, &rounded}) each->step(0);
    const Values expected = gathered(exact, &Unit::gradient);
    const double found = difference(gathered(run, &Unit::gradient), expected).relative(),
                 before = difference(gathered(rounded, &Unit::gradient), expected).relative();
    EXPECT_GT(found, 0);
    EXPECT_LT(found, 0.6 * before);
  }
}

}  // namespace
}  // namespace megalith
