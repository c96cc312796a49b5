// Documents that are kept apart (data.isolate_documents), in every kind of layout: as one rank alone has it, planned to
// the byte, and the same bits wherever layouts promise them.
#include <cmath>

#include "tests/mpi/on_all_ranks.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

// A sequence of made-up text has several documents, and some end with it.
Config apart() {
  Config config = deep_model(6);
  config.data.isolate_documents = true;
  config.data.end_of_text = 4;
  return config;
}

// One of each kind that this many ranks allow: tensor with and without sequence parallelism, pipelines with and without
// virtual stages, and data parallelism in what is left.
std::vector<Config> layouts_apart(int ranks) {
  std::vector<Config> all;
  for (int tensor : {1, 2, 3})
    for (int pipeline : {1, 2, 4}) {
      if (ranks % (tensor * pipeline) != 0) continue;
      Config c = apart();
      c.parallel.tensor_parallel_degree = tensor;
      c.parallel.pipeline_parallel_degree = pipeline;
      c.parallel.sequence_parallel = tensor > 1 && pipeline > 1;
      all.push_back(c);
      if (tensor > 1) all.back().parallel.virtual_stages = pipeline > 1 ? 2 : 1;
      if (tensor > 1 || pipeline == 1) continue;
      c.parallel.virtual_stages = 2;
      all.push_back(c);
    }
  return all;
}

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  Values weights;
  bool operator==(const Outcome&) const = default;
};
Outcome outcome_of(const Config& layout, int64_t steps) {
  SmallRun run = on_all_ranks(layout);
  Outcome outcome;
  for (const StepScalars& step : run.steps(steps)) outcome.losses.push_back(step.loss);
  outcome.evaluated = run.evaluate(7);
  outcome.weights = weights_of(run);
  EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
  return outcome;
}

TEST(DocumentsApart, FollowOneRankAlone) {
  SmallRun alone(apart());
  const std::vector<StepScalars> expected = alone.steps(2);
  const double evaluated = alone.evaluate(7);
  Config shared = apart();
  shared.data.isolate_documents = false;
  EXPECT_GT(std::abs(SmallRun(shared).step(0).loss - expected[0].loss), 1e-4 * expected[0].loss);
  for (const Config& layout : layouts_apart(session().size())) {
    SCOPED_TRACE(described(layout));
    const Outcome outcome = outcome_of(layout, 2);
    for (size_t s = 0; s < expected.size(); s++)
      EXPECT_NEAR(outcome.losses[s], expected[s].loss, 1e-5 * expected[s].loss) << "step " << s;
    EXPECT_NEAR(outcome.evaluated, evaluated, 1e-5 * evaluated);
    const DryRun dry = dry_run(layout, session().size());
    EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
  }
}

// What the README says is bit-equal.
TEST(DocumentsApart, AreTheSameBitsWherePromised) {
  using Kind = ActivationCheckpointing::Kind;
  for (const Config& layout : layouts_apart(session().size())) {
    SCOPED_TRACE(described(layout));
    const Outcome outcome = outcome_of(layout, 1);
    const auto same = [&](const auto& change) {
      Config other = layout;
      change(other);
      SCOPED_TRACE(described(other));
      const Outcome found = outcome_of(other, 1);
      EXPECT_EQ(found.losses, outcome.losses);
      EXPECT_EQ(found.evaluated, outcome.evaluated);
      EXPECT_EQ(found.weights, outcome.weights);
    };
    same([](Config& c) {
      c.parallel.sharding_strategy = ShardingStrategy::shard_grad_op;
      if (c.parallel.pipeline_parallel_degree > 1) c.parallel.pipeline_schedule = PipelineSchedule::gpipe;
      c.memory = {.activation_checkpointing = {Kind::group, 2}, .offload_activations = true, .offload_optimizer = 1};
    });
    same([](Config& c) { c.memory = {.activation_checkpointing = {Kind::selective}}; });
  }
}

}  // namespace
}  // namespace megalith
