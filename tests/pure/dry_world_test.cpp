// The dry world against the real one: what a rehearsal plans is what the CPU run needs and does, to the byte; and the
// plan of a large job takes no time to speak of.
#include <gtest/gtest.h>

#include <chrono>

#include "kernels/activation/gelu.h"
#include "tests/long_tests.h"
#include "tests/pure/small_run.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

struct Variant {
  std::string name;
  std::function<void(Config&)> change;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"fp32", [](Config&) {}},
      {"bf16", [](Config& c) { c.precision.compute = ComputeType::bf16; }},
      {"dropout", [](Config& c) { c.model.dropout = 0.1; }},
      {"recompute", [](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each; }},
      {"selective",
       [](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::selective; }},
      {"group_2",
       [](Config& c) {
         c.memory.activation_checkpointing = {ActivationCheckpointing::Kind::group, 2};
       }},
      {"offload",
       [](Config& c) {
         c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
         c.memory.offload_activations = true;
       }},
      {"bf16_recompute_dropout",
       [](Config& c) {
         c.precision.compute = ComputeType::bf16;
         c.model.dropout = 0.1;
         c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
       }},
      {"one_chunk", [](Config& c) { c.memory.lm_head_chunks = 1; }},
      {"five_chunks", [](Config& c) { c.memory.lm_head_chunks = 5; }},
      {"no_shard", [](Config& c) { c.parallel.sharding_strategy = ShardingStrategy::no_shard; }},
      {"one_layer", [](Config& c) { c.model.layers = 1; }},
      {"no_clip", [](Config& c) { c.optimizer.gradient_clip = 0; }},
      {"wide_head", [](Config& c) { c.model.vocab = 1000; }},
  };
  return all;
}

class DryWorld : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Config, DryWorld, testing::ValuesIn(variants()), [](const auto& p) { return p.param.name; });

TEST_P(DryWorld, PeaksAreThoseOfTheRun) {
  Config config = small_config();
  GetParam().change(config);
  SmallRun run(config);
  run.steps(2);
  run.evaluate(3);
  run.evaluate(8);
  const MemorySizes real = run.runtime.memory.peaks();
  for (MemoryClass c : all_memory_classes)
    for (MemoryPlace place : all_memory_places)
      EXPECT_EQ(real.at(c, place), run.rehearsal.memory.at(c, place)) << name_of(c);
  EXPECT_GT(real.at(MemoryClass::scratch, MemoryPlace::device), 0);
  EXPECT_EQ(real.total(MemoryPlace::host) > 0, config.memory.offload_activations);
}

TEST_P(DryWorld, WorkIsThatOfTheRun) {
  Config config = small_config();
  GetParam().change(config);
  SmallRun run(config);
  for (int64_t s : {0, 1}) {
    run.runtime.stream.clear_log();
    run.step(s);
    const std::vector<OpRecord>&real = run.runtime.stream.log(), &dry = run.rehearsal.ops;
    ASSERT_EQ(real.size(), dry.size());
    for (size_t i = 0; i < real.size(); i++) {
      EXPECT_STREQ(real[i].name, dry[i].name);
      EXPECT_EQ(real[i].launches, dry[i].launches) << real[i].name;
      EXPECT_EQ(real[i].flops, dry[i].flops) << real[i].name;
      EXPECT_EQ(real[i].bytes, dry[i].bytes) << real[i].name;
      EXPECT_EQ(dry[i].seconds, 0) << "nothing runs in the dry world";
    }
  }
}

// An arena of the planned size refuses one byte more, so the test above cannot pass with a plan that is too small; this
// one shows that the comparison sees a plan that is too large.
TEST(DryWorld, AnotherConfigHasOtherPeaks) {
  const SmallRun a(small_config());
  Config config = small_config();
  config.batch.microbatch_size++;
  EXPECT_NE(a.rehearsal.memory, SmallRun(config).rehearsal.memory);
}

double product_flops(const std::vector<OpRecord>& ops) {
  double flops = 0;
  for (const OpRecord& op : ops)
    if (std::string_view(op.name).starts_with("linear_")) flops += op.flops;
  return flops;
}

// A layer keeps 16 C elements a row, its input among them and without what attention keeps of its rows; selective keeps
// 10 C of them, and each one C.
TEST(DryWorld, RecomputationKeepsLess) {
  Config config = small_config();
  config.model.layers = 12;
  using What = ActivationCheckpointing::Kind;
  const auto saved = [&](ActivationCheckpointing what, bool offload = false) {
    config.memory.activation_checkpointing = what;
    config.memory.offload_activations = offload;
    return SmallRun(config).rehearsal.memory.at(MemoryClass::saved, MemoryPlace::device);
  };
  const int64_t none = saved({What::none}), each = saved({What::each});
  EXPECT_LT(saved({What::selective}), none * 3 / 4);
  EXPECT_LT(each, none / 8);
  EXPECT_LT(saved({What::group, 3}), each);
  EXPECT_LT(saved({What::each}, true), each / 2);
}

// Two desks of a layer stay, of the 16 bytes a parameter that fp32 has beside its gradient.
TEST(DryWorld, WhatWaitsOnTheHostTakesNoDeviceMemory) {
  Config config = small_config();
  config.model.layers = 12;
  config.precision.compute = ComputeType::bf16;
  const auto of = [&](double optimizer, bool parameters) {
    config.memory.offload_optimizer = optimizer;
    config.memory.offload_parameters = parameters;
    return SmallRun(config).rehearsal.memory;
  };
  const auto bytes = [](const MemorySizes& sizes, MemoryPlace place) {
    return sizes.at(MemoryClass::parameters, place) + sizes.at(MemoryClass::optimizer, place);
  };
  const MemorySizes here = of(0, false), half = of(0.5, false), all = of(1, false), with_weights = of(1, true);
  const auto whole = static_cast<double>(bytes(here, MemoryPlace::device));  // 4 + 2 + 8 bytes a parameter
  EXPECT_NEAR(static_cast<double>(bytes(half, MemoryPlace::host)) / whole, 6.0 / 14, 0.05);
  EXPECT_NEAR(static_cast<double>(bytes(all, MemoryPlace::host)) / whole, 12.0 / 14, 0.01);
  EXPECT_NEAR(static_cast<double>(bytes(all, MemoryPlace::device)) / whole, 2.0 / 14 + 2.0 / 12 * 12 / 14, 0.05);
  EXPECT_NEAR(static_cast<double>(bytes(with_weights, MemoryPlace::host)) / whole, 1, 0.01);
  EXPECT_LT(static_cast<double>(bytes(with_weights, MemoryPlace::device)) / whole, 2.0 / 12 + 0.05);
}

// A layer has 24 C^2 FLOPs a token forward, without attention's own; its last product is 8 C^2 and is not made again.
TEST(DryWorld, RecomputationLeavesOutTheLastProduct) {
  Config config = small_config();
  config.batch.microbatch_size = 5;
  const auto flops = [&](ActivationCheckpointing::Kind kind) {
    config.memory.activation_checkpointing.kind = kind;
    return product_flops(rehearse(config, make_plan(config, 1, 0)).ops);
  };
  using What = ActivationCheckpointing::Kind;
  const double elementwise = 3 * 15 + 4 * 15 * (1 + gelu_forward_flops);  // what biases and the GELU add
  EXPECT_EQ(flops(What::each) - flops(What::none), 3 * (16 * 15 * 15 + elementwise) * 5 * 7);
  EXPECT_EQ(flops(What::selective), flops(What::none));
}

// 2 flops forward and 4 backward for every weight that multiplies and every token; a bias adds a little. The GELUs that
// are part of products are not counted.
TEST(DryWorld, MatrixProductsAreSixFlopsAWeightAndToken) {
  Config config = small_config();
  config.batch.microbatch_size = 5;  // no masked slot
  const Rehearsal rehearsal = rehearse(config, make_plan(config, 1, 0));
  const double weights = 12.0 * 3 * 15 * 15 + 31 * 15, tokens = 5 * 7;
  const double gelus = (gelu_forward_flops + gelu_backward_flops) * 3 * 4 * 15 * tokens;
  EXPECT_NEAR(product_flops(rehearsal.ops) - gelus, 6 * weights * tokens, 0.05 * 6 * weights * tokens);
  EXPECT_GE(product_flops(rehearsal.ops) - gelus, 6 * weights * tokens);
}

Config config_of_30b() {
  Config config;
  config.model = {.layers = 48, .hidden = 7168, .heads = 56, .vocab = 50257, .context = 2048, .dropout = 0};
  config.batch = {.sequence_length = 2048, .global_batch_size = 512, .microbatch_size = 1};
  config.precision.compute = ComputeType::bf16;
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  return resolve(config);
}

// Processor time, so that a busy machine does not fail it. The sanitizers slow it down, and get ten times as long.
DryRun planned_in_five_seconds(const Config& config) {
  const std::clock_t start = std::clock();
  DryRun run = dry_run(config, 256);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, MEGALITH_SANITIZED ? 50 : 5);
  testing::Test::RecordProperty("seconds", fmt::format("{:.2f}", seconds));
  EXPECT_TRUE(run.faults.empty()) << run.faults.front();
  return run;
}

TEST(DryRun, PlansThirtyBillionParametersOn256RanksInFiveSeconds) {
  for (int64_t degree : {32, 0}) {
    if (degree == 0 && !taken("DryRun.PlansThirtyBillionParametersOn256RanksInFiveSeconds")) continue;
    Config config = config_of_30b();
    config.parallel.sharded_data_parallel_degree = degree;
    const DryRun run = planned_in_five_seconds(config);
    ASSERT_EQ(run.memory.size(), 256u);

    // Weights and moments: 12 bytes a parameter and 2 for the copy in bf16, over the ranks of a shard axis.
    const double parameters = static_cast<double>(num_parameters(model_spec(config.model)));
    const double shards = degree ? static_cast<double>(degree) : 256;
    const MemorySizes& m = run.memory.front();
    const int64_t state =
        m.at(MemoryClass::parameters, MemoryPlace::device) + m.at(MemoryClass::optimizer, MemoryPlace::device);
    EXPECT_NEAR(static_cast<double>(state), 14 * parameters / shards, 1e-3 * 14 * parameters / shards);
    const std::string text = report(config, run);
    EXPECT_NE(text.find("all match and drain"), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("{} parameters", num_parameters(model_spec(config.model)))), std::string::npos);
  }
}

// Every layer of every microbatch has transfers of its own here: about three million, all of them matched.
TEST(DryRun, PlansManyMicrobatchesOfTensorAndPipelineInFiveSeconds) {
  if (!taken("DryRun.PlansManyMicrobatchesOfTensorAndPipelineInFiveSeconds")) GTEST_SKIP() << "a long test";
  Config config = config_of_30b();
  config.parallel.tensor_parallel_degree = 8;
  config.parallel.pipeline_parallel_degree = 4;
  config.parallel.ranks_per_node = 8;
  planned_in_five_seconds(config);
}

// A GPU holds what its rank has on the device, a node what all its ranks have on the host.
TEST(DryRun, ThePlanSaysWhichPlace) {
  Config config = small_config();
  config.parallel.ranks_per_node = 2;
  DryRun run = dry_run(config, 4);
  const std::string before = report(config, run);
  EXPECT_NE(before.find("memory of the fullest rank, rank 0 (shard 0), on its device:\n"), std::string::npos) << before;
  EXPECT_EQ(before.find("host"), std::string::npos) << before;
  const Plan plan = make_plan(config, 4, 0);  // in f32
  EXPECT_NE(before.find(fmt::format("{} bytes      0.000 GiB of logits on the stage with the head, {} rows at a time\n",
                                    4 * plan.pass.head_rows * plan.logit_columns, plan.pass.head_rows)),
            std::string::npos)
      << before;

  const int64_t device = run.memory[3].total(MemoryPlace::device);
  run.memory[0].at(MemoryClass::saved, MemoryPlace::host) = 500;
  run.memory[2].at(MemoryClass::saved, MemoryPlace::host) = 300;
  run.memory[3].at(MemoryClass::saved, MemoryPlace::host) = 400;
  run.memory[3].at(MemoryClass::optimizer, MemoryPlace::host) = 11;
  EXPECT_EQ(run.memory[3].total(MemoryPlace::host), 411);
  EXPECT_EQ(run.memory[3].total(MemoryPlace::device), device);
  const std::string text = report(config, run);
  const auto line = [](const char* name, int64_t bytes) {
    return fmt::format("  {:<14} {:>16} bytes      0.000 GiB\n", name, bytes);
  };
  EXPECT_NE(text.find("host memory of the fullest node, 1, for all of its ranks:\n" + line("parameters", 0) +
                      line("optimizer", 11) + line("gradients", 0) + line("saved", 700) + line("scratch", 0) +
                      line("communication", 0) + line("checkpoint", 0) + line("total", 711)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(line("total", device)), std::string::npos) << "the device's is what it was\n" << text;
  config.run.device = Device::cpu;
  for (const char* words : {"(shard 0), in its node's memory:", "for all of its ranks, in addition:"})
    EXPECT_NE(report(config, run).find(words), std::string::npos) << report(config, run);
}

TEST(DryRun, ReportsFaults) {
  DryRun run = dry_run(small_config(), 4);
  run.traces[2].erase(run.traces[2].begin());
  run.faults = match(run.mesh, run.traces);
  EXPECT_NE(report(small_config(), run).find("transfers: FAULTS"), std::string::npos);
}

TEST(DryRun, EveryRecipePlansAndDrains) {
  for (const char* recipe : {"quickstart", "gpt2_124m", "gpt2_350m", "gpt2_774m", "gpt2_1558m"}) {
    Config config = load_config(fmt::format("{}/configs/{}.toml", MEGALITH_SOURCE_DIR, recipe));
    if (config.model.vocab == 0) config.model.vocab = 50257;
    for (int ranks : {1, 2, 3, 8}) EXPECT_TRUE(dry_run(config, ranks).faults.empty()) << recipe << " on " << ranks;
  }
}

}  // namespace
}  // namespace megalith
