// Which parts of a step's program are graphs, and what the dry world counts of them.
#include "trainer/parallel/graphs.h"
#include "trainer/program/update.h"

#include <gtest/gtest.h>

#include "tests/pure/small_run.h"
#include "trainer/planner/time_line.h"

namespace megalith {
namespace {

using Op = Instruction::Op;

Config with_graphs(const std::function<void(Config&)>& change = {}) {
  Config config = small_config();
  config.run.cuda_graphs = true;
  if (change) change(config);
  return resolve(config);
}

std::vector<size_t> sizes_of_graphs(const ProgramParts& parts) {
  std::vector<size_t> sizes(parts.graphs);
  for (const ProgramPart& part : parts.parts)
    if (part.graph != Instruction::none) sizes[static_cast<size_t>(part.graph)] = part.end - part.begin;
  return sizes;
}

// Embedding, 3 layers there and back, head, the count of its loss.
TEST(Graphs, AMicrobatchIsOne) {
  const Plan plan = make_plan(with_graphs(), 1, 0);
  ASSERT_TRUE(has_graphs(plan));
  const Program program = training_program(plan);
  const ProgramParts parts = parts_of(plan, program);
  std::vector<int32_t> graphs;
  for (const ProgramPart& part : parts.parts) graphs.push_back(part.graph);
  constexpr int32_t none = Instruction::none;
  EXPECT_EQ(graphs, (std::vector<int32_t>{0, none, 1, none, 2, none, 2, none}))
      << "zeros; then microbatches, of which the first writes gradients and the others add to them";
  EXPECT_EQ(sizes_of_graphs(parts), (std::vector<size_t>{plan.units.size(), 10, 10}));
  for (const ProgramPart& part : parts.parts)
    if (part.graph == none) {
      for (size_t at = part.begin; at < part.end; at++)
        EXPECT_TRUE(program[at].op == Op::load || program[at].op == Op::keep_loss || is_of_update(program[at].op));
    }
}

TEST(Graphs, ThereAreNoneWhereArgumentsChange) {
  EXPECT_FALSE(has_graphs(make_plan(small_config(), 1, 0))) << "not asked for";
  const auto refused = [](int ranks, const std::function<void(Config&)>& change) {
    return !has_graphs(make_plan(with_graphs(change), ranks, 0));
  };
  EXPECT_FALSE(refused(2, {}));
  EXPECT_TRUE(refused(1, [](Config& c) { c.run.device = Device::cpu; }));
  EXPECT_FALSE(refused(1, [](Config& c) { c.model.dropout = 0.1; })) << "which is loaded";
  EXPECT_TRUE(refused(3, [](Config& c) { c.parallel.tensor_parallel_degree = 3; }));
  EXPECT_TRUE(refused(3, [](Config& c) { c.parallel.pipeline_parallel_degree = 3; }));
}

// The laws of graphs.h, on programs of every kind that one stage without tensor parallelism has.
TEST(Graphs, HoldNothingThatIsNotTheSameEachTime) {
  using Kind = ActivationCheckpointing::Kind;
  int64_t cut = 0;
  for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op,
                              ShardingStrategy::shard_optimizer, ShardingStrategy::no_shard})
    for (const int ranks : {1, 2})
      for (const ActivationCheckpointing& recompute :
           {ActivationCheckpointing{}, {Kind::selective}, {Kind::each}, {Kind::group, 2}, {Kind::contiguous}})
        for (const bool offload : {false, true}) {
          const Config config = with_graphs([&](Config& c) {
            c.parallel.sharding_strategy = strategy;
            c.memory.activation_checkpointing = recompute;
            c.memory.offload_activations = offload && recompute.kind != Kind::none && recompute.kind != Kind::selective;
            c.batch.global_batch_size = 8;
          });
          const Plan plan = make_plan(config, ranks, 0);
          const Program program = training_program(plan);
          const ProgramParts parts = parts_of(plan, program);
          std::vector<Program> seen(parts.graphs);
          size_t at = 0;
          for (const ProgramPart& part : parts.parts) {
            ASSERT_EQ(part.begin, at) << "in order, and nothing is left out";
            ASSERT_LT(part.begin, part.end);
            int64_t recomputed = 0;
            Program held;
            for (; at < part.end; at++) {
              Instruction i = program[at];
              if (part.graph == Instruction::none) continue;
              for (const Op varies :
                   {Op::cast, Op::gather, Op::await_gather, Op::scatter, Op::relay, Op::collect, Op::sum_copies,
                    Op::share_sums, Op::sum_tensor, Op::await_sums, Op::sum_tied, Op::receive, Op::send, Op::offload,
                    Op::fetch, Op::await_transfer, Op::load, Op::keep_loss})
                ASSERT_NE(i.op, varies);
              ASSERT_FALSE(is_of_update(i.op));
              ASSERT_FALSE(i.op == Op::zero && i.slot != Instruction::none);
              recomputed += i.op == Op::recompute;
              recomputed -= i.op == Op::backward && i.saved == Instruction::none;
              ASSERT_GE(recomputed, 0);
              i.microbatch = Instruction::none;
              held.push_back(i);
            }
            EXPECT_EQ(recomputed, 0);
            if (part.graph == Instruction::none) continue;
            Program& same = seen.at(static_cast<size_t>(part.graph));
            if (same.empty()) same = held;
            EXPECT_EQ(same, held);
          }
          ASSERT_EQ(at, program.size());
          cut += static_cast<int64_t>(parts.graphs > 3);
          if (ranks == 1 && strategy == ShardingStrategy::no_shard && !offload) {
            EXPECT_EQ(parts.graphs, 3u);
          }
        }
  EXPECT_GT(cut, 0) << "transfers cut some into more";
}

TEST(Graphs, TheDryWorldCountsThem) {
  const auto rehearsed = [](bool graphs) {
    Config config = with_graphs();
    config.run.cuda_graphs = graphs;
    return rehearse(config, make_plan(config, 1, 0), TraceLevel::everything);
  };
  const Rehearsal with = rehearsed(true), without = rehearsed(false);
  EXPECT_EQ(without.graphs, GraphCounts{});
  EXPECT_EQ(with.graphs.graphs, 1 + 3);
  EXPECT_EQ(with.memory, without.memory);
  int64_t all = 0, together = 0;
  for (const OpRecord& op : with.ops) all += op.launches;
  EXPECT_GT(with.graphs.ops, all / 2);
  EXPECT_LT(with.graphs.ops, all);
  ASSERT_EQ(with.trace.size(), without.trace.size());
  for (size_t i = 0; i < with.trace.size(); i++) {
    TraceEvent event = with.trace[i];
    together += event.together;
    event.together = false;
    EXPECT_EQ(event, without.trace[i]) << i;
  }
  EXPECT_EQ(together, with.graphs.ops - with.graphs.graphs) << "all but the first of each";

  // A host so slow that nothing else counts: a graph costs it one launch.
  Hardware h = load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml");
  h.calibrated.launch = 1e6;
  const auto seconds = [&](const Rehearsal& r) {
    return time_line({}, {stage_trace(0, r.trace)}, h, processor_of(h, ComputeType::fp32, 1)).seconds;
  };
  EXPECT_NEAR(seconds(without) - seconds(with), static_cast<double>(together), 1e-3);
}

}  // namespace
}  // namespace megalith
