// What each kind of parallelism sends in a step, against theory, and that it sends it under compute: read from the
// traces of rehearsals, which tests/mpi/layouts_test.cpp holds equal to those of the real step.
#include <gtest/gtest.h>

#include <map>

#include "tests/pure/ops_under.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

Config model() {
  Config config = small_config();
  config.model = {.layers = 8, .hidden = 24, .heads = 4, .vocab = 64, .context = 8, .dropout = 0};
  config.batch = {.sequence_length = 8, .global_batch_size = 12, .microbatch_size = 1};
  return config;
}

struct Step {
  Plan plan;
  std::vector<TraceEvent> trace;

  Step(const Config& config, int ranks, int rank = 0)
      : plan(make_plan(config, ranks, rank)), trace(rehearse(config, plan, TraceLevel::everything).trace) {}

  std::vector<TraceEvent> on(Channel channel, Transfer transfer) const {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : transfers_on(trace, static_cast<int>(channel)))
      if (event.transfer == transfer) found.push_back(event);
    return found;
  }
  int64_t calls(Channel channel, Transfer transfer) const { return static_cast<int64_t>(on(channel, transfer).size()); }
  int64_t bytes(Channel channel, Transfer transfer) const {
    int64_t sum = 0;
    for (const TraceEvent& event : on(channel, transfer)) sum += event.bytes;
    return sum;
  }
  int64_t microbatches() const { return plan.batch.num_microbatches(); }
  int64_t residual() const { return plan.rows() * plan.model.hidden * 4; }  // bytes of all rows
  int64_t layers_numel() const { return 8 * plan.units[plan.chunks[0].first_unit].numel; }
  int64_t ends_numel() const {
    int64_t sum = 0;
    for (const UnitPlan& unit : plan.units) sum += unit.is_layer ? 0 : unit.numel;
    return sum;
  }
};

// Shoeybi et al., section 3: two sums of the residual in each layer forward and two backward; here also one for the
// embedding and one below the head, and of each row's loss a maximum and two sums.
TEST(TensorParallel, SumsTheResidualTwiceALayerEachWay) {
  Config config = model();
  config.parallel.tensor_parallel_degree = 4;
  const Step step(config, 4);
  const int64_t M = step.microbatches(), N = step.plan.rows();
  EXPECT_EQ(M, 12);
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::all_reduce), M * (4 * 8 + 2 + 2));
  EXPECT_EQ(step.bytes(Channel::tensor, Transfer::all_reduce), M * ((4 * 8 + 2) * step.residual() + 3 * N * 4));
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::all_gather), 0);
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::reduce_scatter), 0);
}

// Where key-value heads are fewer than ranks, the gradients of their rows, and of no others, are summed once a step
// over the ranks of each.
TEST(KeyValueHeads, GradientsOfSharedRowsAreSummedOnceAStep) {
  for (bool sequence : {false, true})
    for (int64_t heads : {1, 2, 4}) {
      Config config = model();
      config.model.heads = 8;
      config.model.key_value_heads = heads;
      config.model.qkv_bias = true;
      config.parallel.tensor_parallel_degree = 4;
      config.parallel.sequence_parallel = sequence;
      const Step step(config, 4, 3);
      config.model.key_value_heads = 4;
      const Step apart(config, 4, 3);
      // Each layer sums the rows of a key and a value head, in f32, with the zeros behind them up to the next
      // parameter, in the weights and in the biases: over some of the ranks, or over all.
      const int64_t L = 8, D = 3, C = 24, queries = 2 * D, rows = queries + 2 * D;
      const int64_t weights = 4 * L * (round_up(rows * C, 64) - queries * C), biases = 4 * L * (64 - queries);
      EXPECT_EQ(step.calls(Channel::heads, Transfer::all_reduce), heads == 2 ? 2 * L : 0);
      EXPECT_EQ(step.bytes(Channel::heads, Transfer::all_reduce), heads == 2 ? weights + biases : 0);
      const auto on_all = [](const Step& s) {
        return std::pair(s.calls(Channel::tensor, Transfer::all_reduce),
                         s.bytes(Channel::tensor, Transfer::all_reduce));
      };
      const auto [calls, bytes] = on_all(apart);
      EXPECT_EQ(on_all(step), std::pair(calls + (heads == 1 ? 2 * L : 0), bytes + (heads == 1 ? weights + biases : 0)))
          << heads << (sequence ? " with sequence" : "");
    }
}

// Korthikanti et al., section 4.2: a gather and a scatter in place of each sum. A third gather in each branch's
// backward pass brings back what its weights multiplied, which is kept in parts.
TEST(SequenceParallel, GathersAndScattersInPlaceOfSums) {
  Config config = model();
  config.parallel.tensor_parallel_degree = 4;
  config.parallel.sequence_parallel = true;
  const Step step(config, 4);
  const int64_t M = step.microbatches(), L = 8;
  // Forward: enter and leave twice a layer; leave the embedding; enter the head. Backward: the same the other way
  // round.
  const int64_t scatters = M * (2 * L + 1 + 2 * L + 1), gathers = M * (2 * L + 1 + 2 * L + 1 + 2 * L);
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::reduce_scatter), scatters);
  EXPECT_EQ(step.bytes(Channel::tensor, Transfer::reduce_scatter), scatters * step.residual());
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::all_gather), gathers);
  EXPECT_EQ(step.bytes(Channel::tensor, Transfer::all_gather), gathers * step.residual());
  // The loss, and once a step the gradients of what is not split: a unit of each layer, and the norm.
  EXPECT_EQ(step.calls(Channel::tensor, Transfer::all_reduce), 2 * M + L + 1);
}

// The activation of each microbatch crosses each boundary once, its gradient once back; the tied table once each way.
TEST(Pipeline, SendsTheResidualOnceOverEachBoundary) {
  for (int64_t chunks : {1, 2}) {
    Config config = model();
    config.parallel.pipeline_parallel_degree = 4;
    config.parallel.virtual_stages = chunks;
    int64_t sent = 0, received = 0, back = 0, back_received = 0;
    for (int rank = 0; rank < 4; rank++) {
      const Step step(config, 4, rank);
      sent += step.bytes(Channel::forward, Transfer::send);
      received += step.bytes(Channel::forward, Transfer::recv);
      back += step.bytes(Channel::backward, Transfer::send);
      back_received += step.bytes(Channel::backward, Transfer::recv);
    }
    const Step step(config, 4);
    const int64_t boundaries = 4 * chunks - 1, table = 4 * step.plan.units[step.plan.tied].numel;
    for (int64_t bytes : {sent, received, back, back_received})
      EXPECT_EQ(bytes, boundaries * step.microbatches() * step.residual() + table) << chunks;
  }
}

// ZeRO (Rajbhandari et al., section 7): stages 1 and 2 gather all weights once a step, stage 3 where it needs them and
// no longer has them; stage 1 scatters gradients once, the others every microbatch.
TEST(Zero, StagesGatherAndScatterWhatTheyShould) {
  const int ranks = 4;
  const auto step_of = [&](ShardingStrategy strategy, int64_t live = 0) {
    Config config = model();
    config.parallel.sharding_strategy = strategy;
    config.parallel.max_live_parameters = live;
    return Step(config, ranks);
  };
  const Step one = step_of(ShardingStrategy::shard_optimizer), two = step_of(ShardingStrategy::shard_grad_op),
             three = step_of(ShardingStrategy::full_shard), none = step_of(ShardingStrategy::no_shard);
  const int64_t all = 4 * (one.layers_numel() + one.ends_numel()), M = one.microbatches();
  ASSERT_EQ(M, 3);
  EXPECT_EQ(one.bytes(Channel::shard, Transfer::all_gather), all);
  EXPECT_EQ(one.bytes(Channel::shard, Transfer::reduce_scatter), all);
  EXPECT_EQ(two.bytes(Channel::shard, Transfer::all_gather), all);
  EXPECT_EQ(two.bytes(Channel::shard, Transfer::reduce_scatter), M * all);
  EXPECT_EQ(three.bytes(Channel::shard, Transfer::reduce_scatter), M * all);
  EXPECT_EQ(three.calls(Channel::shard, Transfer::all_gather), 3 + 2 + 2 * M * (8 - 2));
  EXPECT_EQ(none.calls(Channel::shard, Transfer::all_gather), 0);
  EXPECT_EQ(none.bytes(Channel::data, Transfer::all_reduce), 4 * (none.layers_numel() + none.ends_numel()));
  // As many layers as there is room for are gathered once and stay until they are needed again.
  const int64_t layer = three.layers_numel() / 8;
  for (int64_t room : {3, 5, 8}) {
    const Step roomy = step_of(ShardingStrategy::full_shard, room * layer);
    EXPECT_EQ(roomy.calls(Channel::shard, Transfer::all_gather), 3 + room + 2 * M * (8 - room)) << room;
  }
}

TEST(Zero, SmallUnitsAreGatheredAndScatteredOnceAStep) {
  Config config = model();
  config.parallel.replicate_below = 400;  // the position table and the final norm
  const Step step(config, 4);
  ASSERT_LE(step.plan.units[step.plan.head[0]].numel, 400);
  ASSERT_GT(step.plan.units[step.plan.tied].numel, 400);
  EXPECT_EQ(step.calls(Channel::shard, Transfer::reduce_scatter), 2 + step.microbatches() * (8 + 1));
  config.parallel.replicate_below = int64_t{1} << 40;  // everything: ZeRO-1
  const Step everything(config, 4);
  EXPECT_EQ(everything.calls(Channel::shard, Transfer::reduce_scatter), 8 + 3);
  EXPECT_EQ(everything.calls(Channel::shard, Transfer::all_gather), 8 + 3);
}

// MiCS (Zhang et al., section 3): inside the group every microbatch, between the groups once a step, in one hop each.
TEST(Mics, GroupsMeetOnceAStep) {
  Config config = model();
  config.parallel.sharded_data_parallel_degree = 2;
  const Step step(config, 8);
  EXPECT_EQ(step.calls(Channel::data, Transfer::all_reduce), 8 + 3);
  EXPECT_EQ(step.bytes(Channel::data, Transfer::all_reduce), 4 * (step.layers_numel() + step.ends_numel()) / 2);
  EXPECT_EQ(step.calls(Channel::shard, Transfer::reduce_scatter), step.microbatches() * (8 + 3));
}

// Zhang et al., section 3.2: between nodes a rank receives only what stands in its place of the other nodes.
TEST(Hierarchical, CarriesBetweenNodesOneShareOfWhatItGathers) {
  Config config = model();
  config.parallel.hierarchical_allgather = true;
  config.parallel.ranks_per_node = 4;
  const Step step(config, 8);
  const int64_t inside = step.bytes(Channel::in_node, Transfer::all_gather);
  EXPECT_GT(inside, 0);
  EXPECT_EQ(step.bytes(Channel::between_nodes, Transfer::all_gather) * 4, inside);
  EXPECT_EQ(step.calls(Channel::shard, Transfer::all_gather), 0);
  config.parallel.hierarchical_allgather = false;
  EXPECT_EQ(Step(config, 8).bytes(Channel::shard, Transfer::all_gather), inside);
}

// Every gather of a layer but the first begins before the work on the layer before it, and every scatter ends after the
// work on the next: a layer is 8 ops forward and 12 backward.
TEST(Overlap, GathersAndScattersRunUnderTheWorkOfALayer) {
  const Step step(model(), 4);
  const std::vector<TraceEvent> gathers = step.on(Channel::shard, Transfer::all_gather);
  int hidden = 0;
  for (const TraceEvent& gather : gathers) hidden += ops_under(step.trace, gather.id) >= 8;
  // The tables, and the first layer of the first microbatch, have nothing to hide behind but each other.
  EXPECT_GE(hidden, static_cast<int>(gathers.size()) - 4) << "of " << gathers.size();
  const std::vector<TraceEvent> scatters = step.on(Channel::shard, Transfer::reduce_scatter);
  hidden = 0;
  for (const TraceEvent& scatter : scatters) hidden += ops_under(step.trace, scatter.id) >= 8;
  // At the end of the step the tables and the first layers' gradients are waited for.
  EXPECT_GE(hidden, static_cast<int>(scatters.size()) - 6) << "of " << scatters.size();
}

// In bf16 as well: parts on their way to be summed, and sums over copies in both halves.
TEST(Overlap, GradientsInBf16RunUnderTheWorkOfALayer) {
  Config config = model();
  config.precision.gradient_reduce = StorageType::bf16;
  config.parallel.sharded_data_parallel_degree = 2;
  const Step step(config, 4);
  for (const auto& [channel, transfer, exposed] : {std::tuple(Channel::shard, Transfer::all_to_all, 6),
                                                   {Channel::data, Transfer::all_to_all, 6},
                                                   {Channel::data, Transfer::all_gather, 6}}) {
    const std::vector<TraceEvent> transfers = step.on(channel, transfer);
    int hidden = 0;
    for (const TraceEvent& t : transfers) hidden += ops_under(step.trace, t.id) >= 8;
    EXPECT_GE(hidden, static_cast<int>(transfers.size()) - exposed)
        << name_of(channel) << " " << name_of(transfer) << " of " << transfers.size();
  }
  config.parallel.sharded_data_parallel_degree = 0;
  config.parallel.ranks_per_node = 2;
  const Step relayed(config, 4);
  for (Channel channel : {Channel::in_node, Channel::between_nodes}) {
    int hidden = 0, all = 0;
    for (const TraceEvent& t : relayed.on(channel, Transfer::all_to_all)) {
      hidden += ops_under(relayed.trace, t.id) >= 8;
      all++;
    }
    EXPECT_EQ(all, relayed.microbatches() * (8 + 3));
    EXPECT_GE(hidden, all - 12) << name_of(channel) << " of " << all;
  }
}

// Both halves of it, one behind the other.
TEST(Overlap, ATwoLevelGatherRunsUnderTheWorkOfALayer) {
  Config config = model();
  config.parallel.hierarchical_allgather = true;
  config.parallel.ranks_per_node = 4;
  const Step step(config, 8);
  for (Channel channel : {Channel::between_nodes, Channel::in_node}) {
    const std::vector<TraceEvent> gathers = step.on(channel, Transfer::all_gather);
    int hidden = 0;
    for (const TraceEvent& gather : gathers) hidden += ops_under(step.trace, gather.id) >= 8;
    EXPECT_GE(hidden, static_cast<int>(gathers.size()) - 4) << name_of(channel) << " of " << gathers.size();
  }
}

TEST(Overlap, MessagesTravelUnderTheActionBefore) {
  Config config = model();
  config.parallel.pipeline_parallel_degree = 4;
  const Step step(config, 4, 1);
  for (Channel channel : {Channel::forward, Channel::backward})
    for (Transfer transfer : {Transfer::send, Transfer::recv}) {
      int hidden = 0;
      const std::vector<TraceEvent> messages = step.on(channel, transfer);
      ASSERT_EQ(messages.size(), 12u);
      for (const TraceEvent& message : messages) hidden += ops_under(step.trace, message.id) >= 10;
      EXPECT_GE(hidden, 11) << name_of(channel) << " " << name_of(transfer);
    }
}

}  // namespace
}  // namespace megalith
