// Gradients that travel in bf16, on every rank, against the same step with f32 on the wire.
#include <cmath>

#include "tests/long_tests.h"
#include "tests/mpi/late.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

Config model_of_reductions() {
  Config config = small_config();
  config.model = {.layers = 4, .hidden = 36, .heads = 4, .vocab = 31, .context = 12, .dropout = 0.1};
  config.batch = {.sequence_length = 12, .global_batch_size = 24, .microbatch_size = 1};
  return config;
}

// Every way to sum gradients over this many ranks.
std::vector<Config> layouts_of_reductions() {
  std::vector<Config> all;
  const auto add = [&](ShardingStrategy strategy, int degree) -> ParallelConfig& {
    all.push_back(model_of_reductions());
    all.back().parallel.sharding_strategy = strategy;
    all.back().parallel.sharded_data_parallel_degree = degree;
    return all.back().parallel;
  };
  const int ranks = session().size();
  for (ShardingStrategy strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op,
                                    ShardingStrategy::shard_optimizer, ShardingStrategy::no_shard})
    add(strategy, 0);
  for (int degree = 2; degree < ranks; degree++)
    if (ranks % degree == 0) add(ShardingStrategy::full_shard, degree);
  if (ranks % 2 != 0 || ranks == 2) return all;
  add(ShardingStrategy::full_shard, 0).ranks_per_node = 2;
  add(ShardingStrategy::shard_optimizer, 0).ranks_per_node = ranks / 2;
  ParallelConfig& tensor = add(ShardingStrategy::no_shard, 0);
  tensor.tensor_parallel_degree = 2;
  tensor.sequence_parallel = true;
  add(ShardingStrategy::full_shard, 0).pipeline_parallel_degree = 2;
  return all;
}

Config in_bf16(Config config) {
  config.precision.gradient_reduce = StorageType::bf16;
  return config;
}

// |a - b| / |b|, of all elements of this rank's parameters together.
double relative_error(const Values& a, const Values& b) {
  double error = 0, size = 0;
  for (const auto& [name, values] : b)
    for (size_t i = 0; i < values.size(); i++) {
      const auto x = static_cast<double>(a.at(name)[i]), y = static_cast<double>(values[i]);
      error += (x - y) * (x - y);
      size += y * y;
    }
  return std::sqrt(error / size);
}

// Rounding to bf16 is off by 2^-8 of an element at most, and by 0.38 of that in the root mean square, its place between
// two powers of two being random: less than 2^-9. Roundings of numbers that are not known to each other add up as the
// squares do, in the sum as in each element.
TEST(GradientReduce, IsOffByOneRoundingOnTheWayAndTwoMoreForCopies) {
  for (const Config& layout : layouts_of_reductions())
    for (int64_t seed : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, seed {}", described(layout), seed));
      Config config = layout;
      config.train.seed = seed;
      SmallRun exact = on_all_ranks(config), run = on_all_ranks(in_bf16(config));
      const StepScalars expected = exact.step(seed), found = run.step(seed);
      const double error = relative_error(gathered(run, &Unit::gradient), gathered(exact, &Unit::gradient));
      const int roundings =
          (run.plan.mesh.shard > 1 ? 1 : 0) + (run.plan.relay ? 1 : 0) + (run.plan.mesh.data > 1 ? 2 : 0);
      EXPECT_LE(error, std::sqrt(roundings) * 0x1p-9);
      EXPECT_EQ(error > 0, roundings > 0);
      EXPECT_EQ(found.loss, expected.loss) << "of the same weights";
      EXPECT_NEAR(found.grad_norm, expected.grad_norm, 0x1p-9 * expected.grad_norm);
    }
}

TEST(GradientReduce, FollowsTheCourseOfFp32) {
  const std::vector<Config> layouts = layouts_of_reductions();
  const auto stride = static_cast<size_t>(taken("GradientReduce.FollowsTheCourseOfFp32"));
  for (size_t l = 0; l < layouts.size(); l += stride) {
    const Config& layout = layouts[l];
    SCOPED_TRACE(described(layout));
    SmallRun exact = on_all_ranks(layout), run = on_all_ranks(in_bf16(layout));
    const std::vector<StepScalars> expected = exact.steps(6), found = run.steps(6);
    EXPECT_LT(expected[5].loss, expected[0].loss);
    for (size_t s = 0; s < found.size(); s++) {
      EXPECT_NEAR(found[s].loss, expected[s].loss, 1e-3 * expected[s].loss) << "step " << s;
      EXPECT_NEAR(found[s].grad_norm, expected[s].grad_norm, 1e-2 * expected[s].grad_norm) << "step " << s;
    }
    EXPECT_NEAR(run.evaluate(7), exact.evaluate(7), 1e-3 * expected[5].loss);
  }
}

// The same bits twice, on transfers that deliver late as on others, and in all copies; as planned, call by call and to
// the byte.
TEST(GradientReduce, IsTheSameBitsTwiceAndAsRehearsed) {
  for (const Config& fp32 : layouts_of_reductions()) {
    const Config layout = in_bf16(fp32);
    SCOPED_TRACE(described(layout));
    LateCommunicator world(host_world(session()));
    SmallRun run = on_all_ranks(layout), again = on_all_ranks(layout),
             late(layout, Mesh(mesh_shape(layout, session().size()), world));
    run.runtime.stream.trace().keep(TraceLevel::everything);
    for (int64_t s : {0, 1}) {
      const StepScalars expected = run.step(s);
      if (s == 0) {
        EXPECT_EQ(run.runtime.stream.trace().events(), rehearse(layout, run.plan, TraceLevel::everything).trace);
      }
      for (SmallRun* other : {&again, &late}) {
        const StepScalars found = other->step(s);
        EXPECT_EQ(found.loss, expected.loss);
        EXPECT_EQ(found.grad_norm, expected.grad_norm);
      }
    }
    for (Channel channel : all_channels) EXPECT_EQ(run.runtime.mesh.channel(channel).copied(), 0) << name_of(channel);
    const Values weights = weights_of(run);
    EXPECT_EQ(weights_of(again), weights);
    EXPECT_EQ(weights_of(late), weights);
    run.evaluate(3);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
    const DryRun dry = dry_run(layout, session().size());
    EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();

    Communicator& copies = run.runtime.mesh.channel(Channel::data);
    for (const Unit& unit : run.units()) {
      const int64_t n = unit.master().numel();
      std::vector<float> all(static_cast<size_t>(n * copies.size()));
      copies.all_gather(run.runtime.stream, {all.data(), DType::f32, {n * copies.size()}}, unit.master()).wait();
      for (size_t i = 0; i < all.size(); i++)
        ASSERT_EQ(all[i], unit.master().data<float>()[i % static_cast<size_t>(n)]) << unit.plan().name;
    }
  }
}

TEST(GradientReduce, TakesNoMemoryOfItsOwn) {
  for (const Config& layout : layouts_of_reductions()) {
    const Plan plan = make_plan(layout, session().size(), session().rank()),
               narrow = make_plan(in_bf16(layout), session().size(), session().rank());
    if (plan.mesh.data > 1 || narrow.relay) continue;  // padding, or a slot more
    SCOPED_TRACE(described(layout));
    const MemorySizes wide = rehearse(layout, plan).memory, found = rehearse(in_bf16(layout), narrow).memory;
    for (size_t i = 0; i < wide.bytes.size(); i++) EXPECT_LE(found.bytes[i], wide.bytes[i]);
  }
}

}  // namespace
}  // namespace megalith
