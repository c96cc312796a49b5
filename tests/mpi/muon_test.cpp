// Muon in every layout of this number of ranks: the same bits from the same gradients, the course of one rank alone,
// and the memory and traffic that were planned.
#include <cmath>

#include "tests/mpi/late.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/layout/matrices.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

// Six heads; as many for keys and values, or one.
constexpr int64_t head_counts[] = {0, 1};

Config muon_model(int64_t key_value_heads) {
  Config config = deep_model(6);
  config.model.key_value_heads = key_value_heads;
  config.run.device = Device::cpu;
  config.optimizer.algorithm = Algorithm::muon;
  config.optimizer.muon_learning_rate = 2e-2;
  return config;
}

// Every layout of the ranks; with one key-value head, those in which several ranks have it.
std::vector<Config> muon_layouts(int64_t key_value_heads) {
  std::vector<Config> all;
  const int ranks = session().size();
  for (const int tensor : {1, 2, 3})
    for (const int pipeline : {1, 2, 4})
      for (const int shards : {0, 1, 2}) {
        if (tensor <= key_value_heads) continue;
        if (ranks % (tensor * pipeline) != 0 || (shards > 0 && shards >= ranks / (tensor * pipeline))) continue;
        const auto layout =
            laid_out(muon_model(key_value_heads), tensor, pipeline,
                     shards == 1 ? ShardingStrategy::no_shard : ShardingStrategy::full_shard, shards == 1 ? 0 : shards);
        if (!layout) continue;
        all.push_back(*layout);
        Config& c = all.back();
        c.parallel.sequence_parallel = tensor > 1 && all.size() % 2 == 0;
        if (all.size() % 3 == 0) c.memory.offload_optimizer = 1;
        if (all.size() % 4 == 0) c.parallel.sharding_strategy = ShardingStrategy::shard_optimizer;
      }
  return all;
}

// Every element of the state, by its tensor and its place in that.
using State = std::map<std::pair<std::string, int64_t>, float>;
State state_of(SmallRun& run) {
  State state;
  const auto add = [&](const std::string& path, const Unit& unit, const Tensor& values, Interval elements) {
    if (elements.size() == 0) return;
    for (const HeldShard& held : held_shards(unit, path, values, elements)) {
      const std::vector<float> found = values_of(held.data);
      for (int64_t i = 0; i < held.data.numel(); i++)
        state[{held.shard.name, place_in_whole(columns_of(held.shard), held.shard.elements.begin + i)}] =
            found[static_cast<size_t>(i)];
    }
  };
  for (size_t u = 0; u < run.units().size(); u++) {
    const Unit& unit = run.units()[u];
    add("", unit, unit.master(), unit.plan().shard);
    for (const Optimizer::StateTensors& s : run.trainer.optimizer().state())
      add(s.path + "/", unit, s.by_unit[u], s.elements[u]);
  }
  return state;
}

State after_updates(SmallRun& run) {
  double sums[] = {0.25, 1};
  for (const int64_t step : {0, 1, 2}) {
    for (Unit& unit : run.units()) {
      std::fill_n(unit.gradient().data<float>(), unit.gradient().numel(), 0.0f);
      for (const HeldShard& held : held_shards(unit, "", unit.gradient(), unit.plan().shard))
        for (int64_t i = 0; i < held.data.numel(); i++) {
          const int64_t place = place_in_whole(columns_of(held.shard), held.shard.elements.begin + i);
          held.data.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(3 * place + 7 * step)));
        }
    }
    run.update(step, {sums, DType::f64, {2}});
  }
  return state_of(run);
}

// What is orthogonalised is the whole matrix, in the order of its elements, whoever does it.
TEST(MuonLayouts, MakeTheSameBitsOfTheSameGradients) {
  for (const int64_t heads : head_counts)
    for (const bool narrow : {false, true}) {
      const auto of = [&](Config config) {
        if (narrow) {
          config.precision.compute = ComputeType::bf16;
          config.precision.master = config.precision.moments = StorageType::bf16;
          config.precision.stochastic_rounding = true;
        }
        return config;
      };
      SmallRun alone(of(muon_model(heads)));
      const State expected = after_updates(alone);
      for (const Config& layout : muon_layouts(heads)) {
        SCOPED_TRACE(described(layout));
        SmallRun run = on_all_ranks(of(layout));
        const State found = after_updates(run);
        size_t wrong = 0;
        for (const auto& [place, value] : found) wrong += expected.at(place) != value;
        EXPECT_EQ(wrong, 0u) << "of " << found.size();
        EXPECT_FALSE(found.empty());
      }
    }
}

TEST(MuonLayouts, FollowOneRankAlone) {
  for (const int64_t heads : head_counts) {
    SmallRun alone(muon_model(heads));
    const std::vector<StepScalars> expected = alone.steps(3);
    for (const Config& layout : muon_layouts(heads)) {
      SCOPED_TRACE(described(layout));
      SmallRun run = on_all_ranks(layout);
      follow(run, layout, expected);
      run.evaluate(7);
      EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
      const DryRun dry = dry_run(layout, session().size());
      EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
      for (const Channel channel : all_channels) EXPECT_EQ(run.runtime.mesh.channel(channel).copied(), 0);
    }
  }
}

TEST(MuonLayouts, TouchNothingThatIsUnderWay) {
  for (const int64_t heads : head_counts) {
    SmallRun alone(muon_model(heads));
    const std::vector<StepScalars> expected = alone.steps(3);
    for (const Config& layout : muon_layouts(heads)) {
      SCOPED_TRACE(described(layout));
      LateCommunicator world(host_world(session()));
      SmallRun run(layout, Mesh(mesh_shape(layout, session().size()), world));
      const std::vector<StepScalars> steps = run.steps(3);
      for (size_t s = 0; s < steps.size(); s++) EXPECT_NEAR(steps[s].loss, expected[s].loss, 1e-5 * expected[s].loss);
    }
  }
}

// Each element of a matrix goes to its owner once and comes back once, if it is not there: the exchanges cost what the
// rank with the most to send or to receive has, which is less than twice an even share.
TEST(MuonLayouts, SendEachElementOnceEachWay) {
  Config config = muon_model(0);
  config.model.layers = 4 * session().size();
  SmallRun run = on_all_ranks(config);
  run.runtime.stream.trace().keep(TraceLevel::transfers);
  run.step(0);
  double sent = 0, expected = 0, matrices = 0;
  for (const TraceEvent& e : run.runtime.stream.trace().events())
    if (e.kind == TraceEvent::Kind::begin && e.transfer == Transfer::all_to_all)
      sent += ring_bytes(e.transfer, static_cast<double>(e.bytes), session().size());
  const std::vector<Round> rounds = rounds_of(run.plan);
  for (const Round& round : rounds) {
    double busiest = 0;
    for (int rank = 0; rank < session().size(); rank++) {
      double out = 0, in = 0;
      for (const Matrix& m : round.matrices)
        for (int shard = 0; shard < session().size(); shard++) {
          const auto elements = static_cast<double>(m.in_shard(run.plan.units[m.unit], shard).size());
          if (m.owner == shard) continue;
          if (shard == rank) out += elements;
          if (m.owner == rank) in += elements;
        }
      busiest = std::max({busiest, out, in});
    }
    expected += 2 * 4 * busiest;
    for (const Matrix& m : round.matrices) matrices += static_cast<double>(m.local.size());
  }
  EXPECT_NEAR(sent, expected, 16 * static_cast<double>(rounds.size()));
  EXPECT_LT(sent, 2 * 2 * 4 * matrices / session().size());
  EXPECT_EQ(sent > 0, session().size() > 1);
}

}  // namespace
}  // namespace megalith
