// Sharded training, in-process on every rank, against one rank alone: the same weights to start from, the same losses
// and gradient norms, the memory that the rehearsal planned and the traffic that theory asks for. Every layout that
// this number of ranks allows is tried.
#include <cmath>

#include "tests/mpi/on_all_ranks.h"

namespace megalith {
namespace {

// full_shard over all ranks, no_shard, and every degree in between.
std::vector<Config> sharded_layouts(const Config& config) {
  std::vector<Config> all{config, config};
  all[1].parallel.sharding_strategy = ShardingStrategy::no_shard;
  for (int degree = 2; degree < session().size(); degree++)
    if (session().size() % degree == 0) {
      all.push_back(config);
      all.back().parallel.sharded_data_parallel_degree = degree;
    }
  return all;
}

// Steps of 3 microbatches on one rank; on 8 ranks some have nothing but masked slots.
Config accumulating() {
  Config config = small_config();
  config.batch.global_batch_size = 5;
  config.batch.microbatch_size = 2;
  return config;
}
// Several microbatches on every rank, up to 8 of them.
Config large_batch() {
  Config config = small_config();
  config.batch.global_batch_size = 20;
  config.batch.microbatch_size = 1;
  return config;
}

void expect_same_path(const std::vector<StepScalars>& a, const std::vector<StepScalars>& b, double loss, double norm) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); s++) {
    EXPECT_NEAR(a[s].loss, b[s].loss, loss * b[s].loss) << "step " << s;
    EXPECT_NEAR(a[s].grad_norm, b[s].grad_norm, norm * b[s].grad_norm) << "step " << s;
  }
}
void expect_same_bits(const std::vector<StepScalars>& a, const std::vector<StepScalars>& b) {
  expect_same_path(a, b, 0, 0);
}

TEST(ShardedTraining, FollowsOneRankAlone) {
  for (double dropout : {0.0, 0.2})
    for (Config config : {accumulating(), large_batch()}) {
      config.model.dropout = dropout;
      SmallRun alone(config);
      const std::vector<StepScalars> expected = alone.steps(4);
      EXPECT_LT(expected[3].loss, expected[0].loss);
      for (const Config& layout : sharded_layouts(config)) {
        SCOPED_TRACE(described(layout));
        SmallRun run = on_all_ranks(layout);
        expect_same_path(run.steps(4), expected, 1e-5, 1e-4);
        EXPECT_NEAR(run.evaluate(7), alone.evaluate(7), 1e-5);
      }
    }
}

TEST(ShardedTraining, StartsFromTheSameWeightsEverywhere) {
  SmallRun alone(small_config());
  const Values expected = weights_of(alone);
  for (const Config& layout : sharded_layouts(small_config())) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    EXPECT_EQ(weights_of(run), expected);
  }
}

TEST(ShardedTraining, TwiceTheSameRunIsTheSameBits) {
  Config config = large_batch();
  config.model.dropout = 0.1;
  for (const Config& layout : sharded_layouts(config)) {
    SCOPED_TRACE(described(layout));
    SmallRun first = on_all_ranks(layout), second = on_all_ranks(layout);
    expect_same_bits(first.steps(3), second.steps(3));
    EXPECT_EQ(weights_of(first), weights_of(second));
  }
}

TEST(ShardedTraining, RecomputeChangesNoBit) {
  Config config = large_batch();
  config.model.dropout = 0.1;
  for (Config layout : sharded_layouts(config)) {
    SCOPED_TRACE(described(layout));
    SmallRun kept = on_all_ranks(layout);
    layout.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
    SmallRun recomputed = on_all_ranks(layout);
    expect_same_bits(kept.steps(3), recomputed.steps(3));
    EXPECT_EQ(weights_of(kept), weights_of(recomputed));
  }
}

TEST(ShardedTraining, MaskedSlotsChangeNothing) {
  Config config = small_config();
  config.batch.global_batch_size = 7;
  config.batch.microbatch_size = 1;
  for (const Config& layout : sharded_layouts(config)) {
    SmallRun run = on_all_ranks(layout);
    const StepScalars expected = run.step(0);
    for (int64_t microbatch : {2, 3, 7, 9}) {
      Config masked = layout;
      masked.batch.microbatch_size = microbatch;
      SCOPED_TRACE(described(masked));
      SmallRun other = on_all_ranks(masked);
      expect_same_path({other.step(0)}, {expected}, 1e-6, 1e-6);
    }
  }
}

TEST(ShardedTraining, EveryRankIsToldTheSameAndCopiesStayEqual) {
  for (const Config& layout : sharded_layouts(large_batch())) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    std::string mine;
    for (const StepScalars& step : run.steps(3)) mine += fmt::format("{:a} {:a} ", step.loss, step.grad_norm);
    for (const auto& [name, values] : weights_of(run)) {
      uint64_t sum = 0;
      for (float v : values) sum = sum * 31 + std::bit_cast<uint32_t>(v);
      mine += fmt::format("{} ", sum);
    }
    for (const std::string& text : session().all_gather_text(mine)) EXPECT_EQ(text, mine);
  }
}

TEST(ShardedTraining, AVoteOfOneRankIsCounted) {
  for (const Config& layout : sharded_layouts(accumulating())) {
    SmallRun run = on_all_ranks(layout);
    EXPECT_EQ(run.step(0).ranks.stop, 0);
    EXPECT_EQ(run.step(1, {.stop = session().rank() == session().size() - 1}).ranks.stop, 1);
    const StepScalars all = run.step(2, {.stop = true, .save = session().rank() == 0});
    EXPECT_EQ(all.ranks.stop, session().size());
    EXPECT_EQ(all.ranks.save, 1);
  }
}

TEST(ShardedTraining, EveryRankHasTheRecordsOfAll) {
  const int ranks = session().size(), rank = session().rank();
  for (const Config& layout : sharded_layouts(accumulating())) {
    SmallRun run = on_all_ranks(layout);
    run.stats = [&] { return HostStats{.so_far = {1.5 * rank}, .resident = 1.0 + rank, .on_host = 7}; };
    const StepScalars step = run.step(0, {.save_phases = rank});
    EXPECT_EQ(step.ranks.save_phases, ranks * (ranks - 1) / 2);
    ASSERT_EQ(step.ranks.stats.size(), static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; r++) {
      const HostStats& theirs = step.ranks.stats[static_cast<size_t>(r)];
      EXPECT_EQ(theirs.so_far[0], 1.5 * r);
      EXPECT_EQ(theirs.resident, 1 + r);
      EXPECT_EQ(theirs.on_host, 7);
    }
    EXPECT_EQ(run.step(1).ranks.save_phases, 0) << "nothing is left of the step before";
  }
}

TEST(ShardedTraining, Bf16FollowsToItsPrecision) {
  Config config = large_batch();
  config.precision.compute = ComputeType::bf16;
  SmallRun alone(config);
  const std::vector<StepScalars> expected = alone.steps(3);
  for (const Config& layout : sharded_layouts(config)) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    // The same roundings of the same numbers, but for sums of gradients in another order.
    expect_same_path(run.steps(3), expected, 1e-3, 1e-2);
  }
}

std::vector<Config> memory_variants() {
  std::vector<Config> all(4, large_batch());
  all[1].precision.compute = ComputeType::bf16;
  all[2].memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  all[3].model.dropout = 0.1;
  all[3].memory.lm_head_chunks = 3;
  return all;
}

TEST(Rehearsal, PeaksAreThoseOfEveryRank) {
  for (const Config& variant : memory_variants())
    for (const Config& layout : sharded_layouts(variant)) {
      SCOPED_TRACE(described(layout));
      SmallRun run = on_all_ranks(layout);
      run.steps(2);
      run.evaluate(9);
      EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
    }
}

// Every step is what was rehearsed: op by op, transfer by transfer, wait by wait.
TEST(Rehearsal, TransfersAndWorkAreThoseOfEveryRank) {
  for (const Config& variant : memory_variants())
    for (const Config& layout : sharded_layouts(variant)) {
      SCOPED_TRACE(described(layout));
      SmallRun run = on_all_ranks(layout);
      const Trace& trace = run.runtime.stream.trace();
      const std::vector<TraceEvent> planned = rehearse(run.config, run.plan, TraceLevel::everything).trace;
      for (int step : {0, 1, 2}) {
        run.runtime.stream.clear_log();
        run.runtime.stream.trace().keep(TraceLevel::everything);
        run.step(step);
        EXPECT_TRUE(trace.events() == planned) << "step " << step;
        run.evaluate(3);  // leaves gathered weights behind, which the next step must not count on or off
        run.trainer.weights_loaded();
      }

      run.runtime.stream.clear_log();
      run.step(3);
      ASSERT_EQ(run.runtime.stream.log().size(), run.rehearsal.ops.size());
      for (size_t i = 0; i < run.rehearsal.ops.size(); i++) {
        const OpRecord &real = run.runtime.stream.log()[i], &dry = run.rehearsal.ops[i];
        EXPECT_STREQ(real.name, dry.name);
        EXPECT_EQ(real.launches, dry.launches) << real.name;
        EXPECT_EQ(real.flops, dry.flops) << real.name;
        EXPECT_EQ(real.bytes, dry.bytes) << real.name;
      }
    }
}

// With M microbatches and L layers, of which the last two stay gathered between forward and backward and the first two
// between microbatches: the tables and the norm are gathered once a step, the two blocks that stay once, and the L - 2
// others in every forward and every backward pass. Every unit's gradient is scattered once a microbatch, and summed
// over the copies once a step.
TEST(Traffic, IsWhatTheoryAsksFor) {
  for (int64_t layers : {2, 3, 6})
    for (Config layout : sharded_layouts(large_batch())) {
      layout.model.layers = layers;
      SCOPED_TRACE(fmt::format("{}, {} layers", described(layout), layers));
      SmallRun run = on_all_ranks(layout);
      run.runtime.stream.trace().keep(TraceLevel::transfers);
      run.step(0);

      const int shard = run.plan.mesh.shard, data = run.plan.mesh.data;
      const auto M = run.plan.batch.num_microbatches();
      double ends = 0, block = static_cast<double>(run.plan.units[run.plan.chunks[0].first_unit].numel);
      for (const UnitPlan& unit : run.plan.units) ends += unit.is_layer ? 0 : static_cast<double>(unit.numel);
      const double all = ends + static_cast<double>(layers) * block;
      const int64_t gathered_blocks = 2 + 2 * M * (layers - 2);

      std::map<std::pair<Channel, Transfer>, std::pair<int64_t, double>> counted;  // calls, bytes sent
      for (Channel channel : all_channels)
        for (const TraceEvent& r : transfers_on(run.runtime.stream.trace().events(), static_cast<int>(channel))) {
          auto& [calls, sent] = counted[{channel, r.transfer}];
          calls++;
          sent += ring_bytes(r.transfer, static_cast<double>(r.bytes), run.runtime.mesh.channel(channel).size());
        }
      const auto expect = [&](Channel channel, Transfer transfer, int64_t calls, double sent) {
        const auto& found = counted[{channel, transfer}];
        EXPECT_EQ(found.first, calls) << name_of(channel) << " " << name_of(transfer);
        EXPECT_NEAR(found.second, sent, 1e-6 * sent) << name_of(channel) << " " << name_of(transfer);
      };
      const double others = static_cast<double>(shard - 1) / shard, copies = 2.0 * (data - 1) / data;
      if (shard > 1) {
        expect(Channel::shard, Transfer::all_gather, 3 + gathered_blocks,
               4 * others * (ends + static_cast<double>(gathered_blocks) * block));
        expect(Channel::shard, Transfer::reduce_scatter, M * (layers + 3), 4 * others * static_cast<double>(M) * all);
      } else {
        expect(Channel::shard, Transfer::all_gather, 0, 0);
        expect(Channel::shard, Transfer::reduce_scatter, 0, 0);
      }
      if (data > 1) expect(Channel::data, Transfer::all_reduce, layers + 3, copies * 4 * all / shard);
      const int ranks = session().size();
      if (ranks > 1) {  // a square sum for each unit and the loss; and three flags and the statistics of each rank
        const double sums = 8 * static_cast<double>(layers + 4);
        const double record = 8 * 3 + static_cast<double>(sizeof(HostStats)) * ranks;
        expect(Channel::world, Transfer::all_reduce, 2, (sums + record) * 2 * (ranks - 1) / ranks);
      }
    }
}

}  // namespace
}  // namespace megalith
