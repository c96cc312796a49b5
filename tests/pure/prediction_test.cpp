// The predicted step of real layouts: its accounts, what each number of a profile does to them, and whether it fits.
#include "trainer/planner/prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/pure/small_run.h"
#include "trainer/layout/matrices.h"
#include "trainer/planner/readable.h"
#include "trainer/planner/verdict.h"
#include "trainer/program/action_number.h"

namespace megalith {
namespace {

// A model large enough for every account, on two nodes of four.
Config real_config() {
  Config config = small_config();
  config.model = {.layers = 4, .hidden = 256, .heads = 4, .vocab = 1000, .context = 128, .dropout = 0};
  config.batch = {.sequence_length = 128, .global_batch_size = 32, .microbatch_size = 2};
  config.parallel.ranks_per_node = 4;
  return config;
}

Hardware real_hardware() { return load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml"); }

Prediction predicted(const Config& config, const Hardware& hardware, int ranks = 8) {
  return predict(config, hardware, dry_run_stages(config, {}, ranks, true));
}

TEST(Prediction, AccountsAddUpToTheStep) {
  Config config = real_config();
  for (const auto& [tensor, pipeline, strategy] : {std::tuple{1, 1, ShardingStrategy::full_shard},
                                                   {2, 1, ShardingStrategy::no_shard},
                                                   {2, 2, ShardingStrategy::shard_optimizer},
                                                   {1, 4, ShardingStrategy::shard_grad_op}}) {
    config.parallel.tensor_parallel_degree = tensor;
    config.parallel.pipeline_parallel_degree = pipeline;
    config.parallel.sharding_strategy = strategy;
    const Prediction p = predicted(config, real_hardware());
    ASSERT_EQ(p.line.breakdowns.size(), static_cast<size_t>(pipeline));
    for (const Accounts& stage : p.line.breakdowns)
      EXPECT_NEAR(std::accumulate(stage.begin(), stage.end(), 0.0) / p.seconds, 1, 1e-12);
    EXPECT_GT(p.hfu, p.mfu);
    for (const Accounts& stage : p.line.breakdowns)
      EXPECT_LE(at(p.line.breakdowns[p.slowest], Account::bubble), at(stage, Account::bubble));
  }
}

// In a pipeline the microbatches of the first stage follow one another, and each stage adds one.
TEST(Prediction, TheTimeOfAMicrobatchCountsOnceAStageToo) {
  Config config = real_config();
  for (const int stages : {1, 2, 4}) {
    config.parallel.pipeline_parallel_degree = stages;
    Hardware hardware = real_hardware();
    hardware.calibrated.microbatch = 0;
    const double before = predicted(config, hardware).seconds;
    hardware.calibrated.microbatch = 1000;  // ms
    const int microbatches = 32 / 2 / (8 / stages);
    EXPECT_NEAR(predicted(config, hardware).seconds - before, microbatches + stages - 1, 1e-9) << stages << " stages";
  }
}

// A trace of the predicted step, summed as a measured one is, is its account.
TEST(Prediction, SpansOfComputeAreTheStep) {
  Config config = real_config();
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  config.memory.offload_activations = true;
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 4}}) {
    config.parallel.tensor_parallel_degree = tensor;
    config.parallel.pipeline_parallel_degree = pipeline;
    const Prediction p = predict(config, real_hardware(), dry_run_stages(config, {}, 8, true), true);
    ASSERT_EQ(p.line.spans.size(), static_cast<size_t>(pipeline));
    for (size_t stage = 0; stage < p.line.spans.size(); stage++) {
      Laps laps(0, Account::checkpoint);  // which a prediction has none of
      for (const Span& span : p.line.spans[stage]) {
        if (span.lane != -1) continue;
        laps.enter(span.begin, span.account);
        laps.leave(span.end);
      }
      const Accounts summed = laps.take(p.seconds), &predicted = p.line.breakdowns[stage];
      EXPECT_NEAR(total(summed) / p.seconds, 1, 1e-12);
      double work = 0;  // beside transfers it is slower, which the prediction accounts for by itself
      for (size_t a = 0; a < num_accounts; a++) {
        const auto account = static_cast<Account>(a);
        const bool works = account == Account::gemm || account == Account::attention ||
                           account == Account::elementwise || account == Account::optimizer ||
                           account == Account::directions || account == Account::input || account == Account::slowed;
        if (works)
          work += summed[a] - predicted[a];
        else
          EXPECT_NEAR(summed[a], predicted[a], 1e-9 * p.seconds) << name_of(account);
      }
      EXPECT_NEAR(work, 0, 1e-9 * p.seconds);
    }
  }
}

// The schedule's lane of a predicted step has the actions of the stage's schedule, one after the other.
TEST(Prediction, LaneOfTheScheduleIsTheSchedule) {
  using enum PipelineSchedule;
  Config config = real_config();
  config.model.layers = 8;
  for (const auto& [kind, virtual_stages] : {std::pair{one_f_one_b, 1}, {one_f_one_b, 2}, {zb_h1, 1}, {zb_h1, 2}}) {
    config.parallel.pipeline_parallel_degree = 4;
    config.parallel.pipeline_schedule = kind;
    config.parallel.virtual_stages = virtual_stages;
    for (const auto again : {ActivationCheckpointing::Kind::none, ActivationCheckpointing::Kind::each}) {
      config.memory.activation_checkpointing.kind = again;
      const Prediction p = predict(config, real_hardware(), dry_run_stages(config, {}, 8, true), true);
      for (size_t stage = 0; stage < 4; stage++) {
        std::vector<std::string> shown, scheduled;
        double end = 0;
        for (const Span& span : p.line.spans[stage]) {
          if (span.lane != schedule_lane) continue;
          shown.push_back(span.name);
          EXPECT_GE(span.begin, end);
          EXPECT_GT(span.end, span.begin);
          end = span.end;
        }
        EXPECT_LE(end, p.seconds);
        for (const Action& a : make_plan(config, 8, 2 * static_cast<int>(stage)).schedule)
          scheduled.push_back(name_of(a, virtual_stages));
        EXPECT_EQ(shown, scheduled) << "stage " << stage;
      }
    }
  }
}

// Every stage of a few, or the first, the median and the one that waits longest.
TEST(Prediction, SaysHowLongStagesWait) {
  Config config = real_config();
  config.parallel.pipeline_parallel_degree = 4;
  const Prediction p = predicted(config, real_hardware());
  const std::string text = report(p, mesh_shape(config, 8), 1e9);
  EXPECT_NE(text.find("stages wait for others: 0 "), std::string::npos) << text;
  for (size_t stage = 0; stage < 4; stage++) {
    const double idle = at(p.line.breakdowns[stage], Account::bubble);
    EXPECT_NE(text.find(fmt::format("{} {} ms ({:.1f} %)", stage, readable(1e3 * idle), 100 * idle / p.seconds)),
              std::string::npos)
        << text;
  }
  config.parallel.pipeline_parallel_degree = 1;
  EXPECT_EQ(report(predicted(config, real_hardware()), mesh_shape(config, 8), 1e9).find("wait for others"),
            std::string::npos);
}

// The products of Newton-Schulz's iteration are a line of their own, and ranks that share the matrices share it.
TEST(Prediction, HasALineForMuonsDirections) {
  Config config = real_config();
  const auto line_of = [&](int ranks) {
    const Prediction p = predicted(config, real_hardware(), ranks);
    return at(p.line.breakdowns[p.slowest], Account::directions);
  };
  EXPECT_EQ(line_of(8), 0) << "of AdamW";
  config.optimizer.algorithm = Algorithm::muon;
  EXPECT_GT(line_of(1), 3 * line_of(8));
  EXPECT_LT(line_of(1), 9 * line_of(8));
  const Plan plan = make_plan(config, 1, 0);
  double found = 0, expected = 0;
  for (const TraceEvent& e : rehearse(config, plan, TraceLevel::everything).trace)
    if (e.kind == TraceEvent::Kind::op && e.cost.section == Cost::Section::directions) found += e.cost.flops;
  for (const Round& round : rounds_of(plan))
    for (const Matrix& matrix : round.matrices) expected += matrix.work(plan.direction);
  EXPECT_NEAR(found / expected, 1, 0.02) << "the products, and what is done beside them";
}

TEST(Prediction, ShortStepsStandForALongOne) {
  using enum PipelineSchedule;
  Config config = real_config();
  config.model.layers = 8;
  struct Pipeline {
    int stages, virtual_stages;
    PipelineSchedule kind;
  };
  const std::vector<Pipeline> pipelines{
      {1, 1, one_f_one_b}, {2, 1, one_f_one_b}, {4, 1, one_f_one_b}, {2, 2, one_f_one_b}, {2, 4, one_f_one_b},
      {4, 2, one_f_one_b}, {2, 1, zb_h1},       {4, 1, zb_h1},       {2, 2, zb_h1},       {2, 4, zb_h1},
      {4, 2, zb_h1},       {2, 2, zb_v},        {4, 2, zb_v},        {2, 2, v_half},      {4, 2, v_half}};
  for (const auto& [stages, virtual_stages, kind] : pipelines)
    for (const int64_t batch : {256, 264, 272, 512}) {
      SCOPED_TRACE(fmt::format("{} x {}, {}, batch of {}", stages, virtual_stages, to_string(kind), batch));
      config.batch.global_batch_size = batch;
      config.parallel.pipeline_parallel_degree = stages;
      config.parallel.virtual_stages = virtual_stages;
      config.parallel.pipeline_schedule = kind;
      const StageDryRuns whole = dry_run_stages(config, {}, 8, true), fewer = dry_run_stages(config, {}, 8, false);
      ASSERT_LT(fewer.step.microbatches, whole.step.microbatches);
      const Prediction exact = predict(config, real_hardware(), whole), p = predict(config, real_hardware(), fewer);
      EXPECT_NEAR(p.seconds / exact.seconds, 1, 1e-3);
      EXPECT_NEAR(p.hfu / exact.hfu, 1, 1e-3);
      for (const Accounts& stage : p.line.breakdowns)
        EXPECT_NEAR(std::accumulate(stage.begin(), stage.end(), 0.0) / p.seconds, 1, 1e-12);
    }
}

TEST(Prediction, ARankHasOneDeviceAtMost) {
  const Hardware h = real_hardware();
  EXPECT_EQ(processor_of(h, ComputeType::bf16, 8).peak, 312e12);
  EXPECT_EQ(processor_of(h, ComputeType::bf16, 1).peak, 312e12);
  EXPECT_EQ(processor_of(h, ComputeType::bf16, 16).peak, 156e12);
}

// Every number of a profile, and the account that it moves.
TEST(Prediction, EachNumberMovesItsAccount) {
  Config config = real_config();
  config.parallel.tensor_parallel_degree = 2;
  config.parallel.pipeline_parallel_degree = 2;
  config.parallel.sharded_data_parallel_degree = 2;
  config.parallel.ranks_per_node = 2;
  config.parallel.placement = "tensor shard data pipeline";
  config.parallel.sharding_strategy = ShardingStrategy::full_shard;
  Hardware base = real_hardware();
  base.calibrated.overlap = 0;  // so that work and transfers keep their own accounts
  const StageDryRuns dry_runs = dry_run_stages(config, {}, 8, true);
  const Prediction before = predict(config, base, dry_runs);
  const auto after = [&](auto change) {
    Hardware h = base;
    change(h);
    return predict(config, h, dry_runs);
  };
  const auto ratio = [&](const Prediction& p, Account account) {
    return at(p.line.breakdowns[0], account) / at(before.line.breakdowns[0], account);
  };
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.device.fp32 /= 2; }), Account::gemm), 2, 1e-9);
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.calibrated.gemm /= 2; }), Account::gemm), 2, 1e-9);
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.stack.attention_share /= 2; }), Account::attention), 2, 1e-9);
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.device.bandwidth *= 2; }), Account::elementwise), 0.5, 1e-9);
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.stack.elementwise = 3; }), Account::elementwise), 3, 1e-9);
  EXPECT_GT(ratio(after([](Hardware& h) { h.node.link /= 8; }), Account::tensor_sums), 1);
  EXPECT_GT(ratio(after([](Hardware& h) { h.node.latency *= 10; }), Account::tensor_sums), 1);
  EXPECT_NEAR(ratio(after([](Hardware& h) { h.stack.tensor_exposed = 0.5; }), Account::tensor_sums), 0.5, 1e-9);
  EXPECT_GT(ratio(after([](Hardware& h) { h.network.link /= 8; }), Account::gathers), 1);
  EXPECT_GT(ratio(after([](Hardware& h) { h.network.latency *= 10; }), Account::scatters), 1);
  EXPECT_GT(ratio(after([](Hardware& h) { h.calibrated.collective_delay *= 10; }), Account::tensor_sums), 2);
  EXPECT_GT(ratio(after([](Hardware& h) { h.calibrated.launch = 1000; }), Account::launches), 2);
  EXPECT_NEAR(
      ratio(after([](Hardware& h) { h.calibrated.step *= 2, h.calibrated.microbatch *= 2; }), Account::elsewhere), 2,
      1e-9);
  EXPECT_GT(at(after([](Hardware& h) { h.calibrated.overlap = 1; }).line.breakdowns[0], Account::slowed), 0);
  EXPECT_EQ(at(before.line.breakdowns[0], Account::slowed), 0);

  Config more = config;
  more.batch.global_batch_size *= 4;
  const Prediction longer = predict(more, base, dry_run_stages(more, {}, 8, true));
  EXPECT_LT(at(longer.line.breakdowns[0], Account::bubble) / longer.seconds,
            at(before.line.breakdowns[0], Account::bubble) / before.seconds);
}

TEST(Verdict, FitsUpToTheLastByteAndWarns) {
  Config config = real_config();
  config.run.device = Device::cpu;  // no workspace of CUDA's libraries
  const StageDryRuns dry_runs = dry_run_stages(config, {}, 8, true);
  const std::vector<MemorySizes> memory(8, dry_runs.memory.front());
  Hardware h = real_hardware();
  const auto judged = [&] { return verdict(config, h, dry_runs.mesh, memory, predict(config, h, dry_runs)); };
  const double needed = static_cast<double>(device_bytes(config, h, memory.front())) / (1 << 30);
  h.device.memory = needed + h.device.reserved;
  EXPECT_TRUE(judged().fits);
  EXPECT_EQ(judged().text.find("NOT"), std::string::npos);
  h.device.memory *= 0.999;
  EXPECT_FALSE(judged().fits);
  EXPECT_NE(judged().text.find("DOES NOT FIT"), std::string::npos);

  config.parallel.tensor_parallel_degree = 8;
  config.model.heads = 8;
  const StageDryRuns across = dry_run_stages(config, {}, 8, true);
  const std::string text = verdict(config, h, across.mesh, memory, predict(config, h, across)).text;
  EXPECT_NE(text.find("cross the borders of nodes of 4"), std::string::npos) << text;
  EXPECT_NE(text.find("not a multiple of 64"), std::string::npos) << text;
  EXPECT_EQ(text.find("through the host"), std::string::npos) << text;
  h.node.topology = Topology::host;
  EXPECT_NE(verdict(config, h, across.mesh, memory, predict(config, h, across)).text.find("through the host"),
            std::string::npos);
}

// The copies of a save lie where the tensors do.
TEST(Verdict, OfAProcessorCountsBothPlacesTogether) {
  Config config = real_config();
  config.run.device = Device::cpu;
  const StageDryRuns dry_runs = dry_run_stages(config, {}, 8, true);
  std::vector<MemorySizes> memory(8, dry_runs.memory.front());
  for (MemorySizes& sizes : memory) sizes.at(MemoryClass::checkpoint, MemoryPlace::host) = int64_t{1} << 30;
  Hardware h = real_hardware();
  h.device.kind = DeviceKind::cpu;
  h.device.per_node = 1;
  h.device.memory = h.host.memory =
      4 * gib(memory.front().total(MemoryPlace::device) + memory.front().total(MemoryPlace::host));
  h.device.reserved = 0;
  const auto fits = [&] { return verdict(config, h, dry_runs.mesh, memory, predict(config, h, dry_runs)).fits; };
  EXPECT_TRUE(fits());
  h.device.memory -= 0.5;
  EXPECT_FALSE(fits()) << "each of the two alone would fit";
}

TEST(Verdict, CountsEveryRankOfADeviceAndOfAHost) {
  Config config = real_config();
  config.run.device = Device::cpu;
  const StageDryRuns dry_runs = dry_run_stages(config, {}, 8, true);
  std::vector<MemorySizes> memory(8, dry_runs.memory.front());
  for (MemorySizes& sizes : memory) sizes.at(MemoryClass::saved, MemoryPlace::host) = int64_t{1} << 30;
  Hardware h = real_hardware();
  const auto judged = [&] { return verdict(config, h, dry_runs.mesh, memory, predict(config, h, dry_runs)); };
  h.host.memory = 4;
  EXPECT_TRUE(judged().fits) << judged().text;
  h.host.memory = 3.9;
  EXPECT_FALSE(judged().fits) << "four ranks of a node";

  h.host.memory = 4;
  h.device.per_node = 2;  // two ranks a device
  const double needed = 2 * static_cast<double>(memory.front().total(MemoryPlace::device)) / (1 << 30);
  h.device.memory = needed + h.device.reserved;
  EXPECT_TRUE(judged().fits);
  EXPECT_NE(judged().text.find("4 ranks of a node share 2 devices"), std::string::npos) << judged().text;
  h.device.memory *= 0.999;
  EXPECT_FALSE(judged().fits);
}

TEST(Verdict, WarnsOfUnevenRingsAndOfGathersInTheOpen) {
  Config config = real_config();
  config.batch.global_batch_size = 36;
  config.batch.microbatch_size = 1;
  config.parallel.sharding_strategy = ShardingStrategy::full_shard;
  Hardware h = real_hardware();
  h.network.latency = 1e5;
  const StageDryRuns dry_runs = dry_run_stages(config, {}, 6, true);
  const std::vector<MemorySizes> memory(6, dry_runs.memory.front());
  const std::string text = verdict(config, h, dry_runs.mesh, memory, predict(config, h, dry_runs)).text;
  EXPECT_NE(
      text.find("the shard axis has 6 ranks, which is not a power of two: rings and trees are uneven; use 4 or 8"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("too small to hide the gathers"), std::string::npos) << text;
}

TEST(Prediction, TheRanksOfANodeHaveItsDevices) {
  Hardware h = real_hardware();
  Config config;
  EXPECT_EQ(ranks_on_a_node(config, h, 4), 4);
  EXPECT_EQ(ranks_on_a_node(config, h, 64), 8) << "more nodes than are said";
  h.device.kind = DeviceKind::cpu;
  h.device.per_node = 1;
  EXPECT_EQ(ranks_on_a_node(config, h, 4), 4);
  config.hardware.nodes = 2;
  EXPECT_EQ(ranks_on_a_node(config, h, 4), 2);
}

}  // namespace
}  // namespace megalith
