// Trainings whose launches are graphs, bit for bit against the same one by one, on the simulated GPU: which gives a
// graph's kernels the arguments of when it was captured, so that one which changes from step to step shows.
#include <cstring>

#include "tests/mpi/session.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

using Bits = std::vector<uint32_t>;

void append(Bits& bits, double scalar) {
  uint64_t all = 0;
  std::memcpy(&all, &scalar, sizeof all);
  bits.push_back(static_cast<uint32_t>(all));
  bits.push_back(static_cast<uint32_t>(all >> 32));
}

// Three steps with an evaluation between them, then one more with the batch of the first: all that they report, and the
// weights.
Bits trained(Config config, bool graphs, const std::function<void(SmallRun&, int64_t step)>& before = {}) {
  config.run.cuda_graphs = graphs;
  config.run.device = Device::cuda;
  SmallRun run(config, World::cuda);
  Bits bits;
  for (const int64_t step : {0, 1, 2, 0}) {
    if (before) before(run, step);
    const GraphCounts first = run.runtime.stream.graphs();
    const StepScalars told = run.step(step);
    if (graphs && !before && step == 2) {
      EXPECT_EQ(run.runtime.stream.graphs() - first, run.rehearsal.graphs);
      EXPECT_GT(run.rehearsal.graphs.ops, 0);
    }
    for (const double scalar : {told.loss, told.grad_norm, told.loss_scale, static_cast<double>(told.decision)})
      append(bits, scalar);
    if (step == 1) append(bits, run.evaluate(2));
  }
  if (!graphs) {
    EXPECT_EQ(run.runtime.stream.graphs(), GraphCounts{});
  }
  for (const Unit& unit : run.units())
    run.runtime.stream.download("read", unit.master(), [&](Tensor host) {
      const size_t at = bits.size();
      bits.resize(at + static_cast<size_t>(host.bytes()) / 4);
      std::memcpy(bits.data() + at, host.raw(), (bits.size() - at) * 4);
    });
  run.runtime.stream.synchronize();
  return bits;
}

Config tiny() {
  Config config = small_config();
  config.model.layers = 1;
  config.batch.global_batch_size = 4;  // 2 microbatches
  return config;
}

void expect_no_bit_changed(const Config& config) { EXPECT_EQ(trained(config, true), trained(config, false)); }

TEST(SimulatedGpuGraphs, OneMicrobatch) {
  Config config = tiny();
  config.batch.global_batch_size = 2;
  expect_no_bit_changed(config);
}

// The last of them has a masked sequence.
TEST(SimulatedGpuGraphs, SeveralMicrobatchesAndDocuments) {
  Config config = tiny();
  config.batch.global_batch_size = 5;
  config.data.isolate_documents = true;
  config.data.end_of_text = 7;
  expect_no_bit_changed(config);
}

// The number of targets that count is another one in each step.
// A masked sequence does not count in the scales of the last.
TEST(SimulatedGpuGraphs, ProductsInEightBits) {
  if (!device::properties().has_fp8()) GTEST_SKIP() << "this chip has no products in 8 bits";
  Config config = tiny();
  config.model.layers = 2;
  config.model.hidden = 64;
  config.model.heads = 4;
  config.model.context = config.batch.sequence_length = 16;
  config.batch.global_batch_size = 5;
  config.precision.compute = ComputeType::bf16;
  config.precision.products = ProductType::fp8;
  expect_no_bit_changed(config);
}

TEST(SimulatedGpuGraphs, WhatAMaskSays) {
  Config config = tiny();
  config.batch.global_batch_size = 2;
  config.data.masked = true;
  expect_no_bit_changed(config);
  EXPECT_NE(trained(config, true), trained(tiny(), true));
}

// A mask of its own for each microbatch of each step, in what is recomputed as well.
TEST(SimulatedGpuGraphs, Dropout) {
  using Kind = ActivationCheckpointing::Kind;
  Config config = tiny();
  config.model.dropout = 0.3;
  config.batch.global_batch_size = 5;
  const Bits want = trained(config, false);
  EXPECT_EQ(trained(config, true), want);
  config.memory.activation_checkpointing.kind = Kind::each;
  EXPECT_EQ(trained(config, true), want);
  config.model.dropout = 0;
  EXPECT_NE(trained(config, false), want);
}

// What is recomputed or fetched changes no bit, so all are held against one.
TEST(SimulatedGpuGraphs, EveryKindOfRecomputation) {
  using Kind = ActivationCheckpointing::Kind;
  Config config = tiny();
  config.model.layers = 2;
  const Bits want = trained(config, false);
  for (const MemoryConfig& memory :
       {MemoryConfig{.activation_checkpointing = {Kind::selective}},
        {.activation_checkpointing = {Kind::each}, .offload_activations = true},
        {.activation_checkpointing = {Kind::contiguous}, .offload_optimizer = 1, .offload_parameters = true}}) {
    config.memory = memory;
    EXPECT_EQ(trained(config, true), want);
  }
}

// Gradients overflow until the scale has fallen: steps are skipped, and the scale is another one each time.
TEST(SimulatedGpuGraphs, ALossScaleThatChanges) {
  Config config = tiny();
  config.precision.compute = ComputeType::fp16;
  config.precision.initial_loss_scale = 0x1p24;
  config.precision.delayed_shift = 1;
  expect_no_bit_changed(config);
}

// Steps that are measured, observed or traced are launched one by one between others.
TEST(SimulatedGpuGraphs, StepsThatAreLookedAt) {
  struct Nobody : Timekeeper {
    int ops = 0;
    void begin_op(const char*, const Cost&) override { ops++; }
    void begin_transfer(int64_t, int, Transfer) override {}
    void begin_wait(int64_t) override {}
    void end() override {}
  } clock;
  int64_t rows = 0;
  const auto look = [&](SmallRun& run, int64_t step) {
    run.runtime.stream.trace().keep_time(step == 1 ? &clock : nullptr);
    run.trainer.stage().observe({});
    if (step == 2)
      run.trainer.stage().observe([&](const std::string& name, int64_t, Tensor seen) {
        if (name == "d h.0") rows += seen.rows();
      });
  };
  const Config config = tiny();
  EXPECT_EQ(trained(config, true, look), trained(config, false));
  EXPECT_GT(clock.ops, 40);
  EXPECT_EQ(rows, 4 * config.batch.sequence_length);
}

}  // namespace
}  // namespace megalith
