// The trainer in the cuda world, on the simulated GPU of tests/simt: real kernels, a device that is late and takes its
// streams in odd orders, memory that the host cannot touch. What it computes is what the CPU computes.
#include <cmath>
#include <cstring>

#include "tests/mpi/session.h"
#include "tests/pure/small_run.h"
#include "tests/simt/simt.h"
#include "trainer/planner/prediction.h"

namespace megalith {
namespace {

std::vector<float> on_host(Stream& s, Tensor t) {
  std::vector<float> values(static_cast<size_t>(t.numel()));
  s.download("read", t, [&](Tensor host) { std::memcpy(values.data(), host.raw(), values.size() * sizeof(float)); });
  s.synchronize();
  return values;
}

// Returns the values of the i-th tensor that is saved.
std::vector<float> on_host_of(SmallRun& run, size_t i) {
  const SavedTensor& saved = run.trainer.saved_tensors()[i];
  run.runtime.stream.synchronize();
  return saved.place == MemoryPlace::host ? values_of(saved.values) : on_host(run.runtime.stream, saved.values);
}

// The tolerances of the references: losses 1e-5, gradient norms 1e-4, weights 1e-3.
void expect_same_course(const Config& config) {
  SmallRun cpu(config), gpu(config, World::cuda);
  for (size_t u = 0; u < cpu.units().size(); u++)
    EXPECT_EQ(values_of(cpu.units()[u].master()), on_host(gpu.runtime.stream, gpu.units()[u].master()))
        << "initial weights of unit " << u;
  for (int64_t step = 0; step < 2; step++) {
    const StepScalars a = cpu.step(step), b = gpu.step(step);
    EXPECT_NEAR(a.loss, b.loss, 1e-5 * a.loss) << "step " << step;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * a.grad_norm) << "step " << step;
  }
  EXPECT_NEAR(cpu.evaluate(3), gpu.evaluate(3), 1e-5 * 4);
  for (size_t u = 0; u < cpu.units().size(); u++) {
    const auto want = values_of(cpu.units()[u].master()), got = on_host(gpu.runtime.stream, gpu.units()[u].master());
    float largest = 0;
    for (float v : want) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < want.size(); i++)
      ASSERT_NEAR(want[i], got[i], 1e-3 * largest) << "unit " << u << ", element " << i;
  }
  EXPECT_EQ(cpu.runtime.memory.peaks(), gpu.runtime.memory.peaks());
}

TEST(SimulatedGpu, TrainsAsTheCpu) { expect_same_course(small_config()); }

// What counts changes from step to step, and so does what gradients are multiplied by, beside a loss scale as well.
TEST(SimulatedGpu, CountsWhatAMaskSaysAsTheCpu) {
  Config config = small_config();
  config.data.masked = true;
  config.model.layers = 2;
  expect_same_course(config);
  config.precision.compute = ComputeType::fp16;
  config.precision.loss_scale = 64;
  SmallRun cpu(config), gpu(config, World::cuda);
  for (int64_t step = 0; step < 2; step++) {
    const StepScalars a = cpu.step(step), b = gpu.step(step);
    EXPECT_EQ(a.counted, b.counted);
    EXPECT_NEAR(a.loss, b.loss, a.loss / 2048) << "step " << step;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 8.0 / 2048 * a.grad_norm) << "step " << step;
  }
}

TEST(SimulatedGpu, TrainsOtherModelsThanGpt2AsTheCpu) {
  Config llama = small_config();
  llama.model.norm = NormKind::rms;
  llama.model.bias = llama.model.qkv_bias = llama.model.tied_head = false;
  llama.model.activation = Activation::swiglu;
  llama.model.positions = Positions::rotary;
  llama.model.heads = 4;
  llama.model.key_value_heads = 2;
  llama.model.head_size = 6;
  llama.model.query_key_norm = true;
  llama.model.layers = 2;
  expect_same_course(llama);
  Config neox = small_config();
  neox.model.parallel_residual = true;
  neox.model.activation = Activation::gelu_erf;
  neox.model.positions = Positions::rotary;
  neox.model.rotary_share = 0.4;
  neox.model.dropout = 0.2;
  neox.model.layers = 2;
  neox.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::selective;
  expect_same_course(neox);
}

TEST(SimulatedGpu, TrainsAdaptersAndPartsOfModelsAsTheCpu) {
  Config adapted = small_config();
  adapted.model.layers = 2;
  adapted.adapter.rank = 3;
  adapted.adapter.dropout = 0.2;
  expect_same_course(resolve(adapted));
  adapted.model.norm = NormKind::rms;
  adapted.model.bias = adapted.model.qkv_bias = adapted.model.tied_head = false;
  adapted.model.activation = Activation::swiglu;
  adapted.model.positions = Positions::rotary;
  adapted.model.head_size = 6;
  adapted.model.query_key_norm = true;
  adapted.adapter.target_modules = "q_proj\nv_proj\ngate_proj\nup_proj\ndown_proj\n";
  expect_same_course(resolve(adapted));
  Config frozen = small_config();
  frozen.model.layers = 2;
  frozen.train.freeze = "wte.weight\nnorms\nh.0.attn\n";
  expect_same_course(resolve(frozen));
}

// Frozen weights that are on the host are gathered from there, and are as many as on the device.
TEST(SimulatedGpu, AdaptersOfWeightsOnTheHostTrainToTheBit) {
  Config config = small_config();
  config.adapter.rank = 3;
  config.precision.compute = ComputeType::bf16;
  SmallRun on_device(resolve(config), World::cuda);
  config.memory.offload_optimizer = 1;
  config.memory.offload_parameters = true;
  SmallRun on_host(resolve(config), World::cuda);
  for (int64_t step = 0; step < 2; step++) {
    const StepScalars a = on_device.step(step), b = on_host.step(step);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
}

TEST(SimulatedGpu, OrthogonalisesAsTheCpu) {
  Config config = small_config();
  config.precision.compute = ComputeType::fp32;
  config.optimizer.algorithm = Algorithm::muon;
  config.memory.offload_optimizer = 0.5;
  expect_same_course(config);

  // In bf16 the products are the tensor cores'. Their sums are in another order than the CPU's, so some elements of a
  // matrix are rounded the other way in each of five steps.
  config.precision.compute = ComputeType::bf16;
  config.model.layers = 1;
  SmallRun cpu(config), gpu(config, World::cuda);
  EXPECT_EQ(cpu.plan.direction, DType::bf16);
  for (int64_t step = 0; step < 2; step++) EXPECT_NEAR(cpu.step(step).loss, gpu.step(step).loss, 0.02) << step;
  for (size_t i = 0; i < cpu.trainer.saved_tensors().size(); i++) {
    const std::vector<float> a = values_of(cpu.trainer.saved_tensors()[i].values), b = on_host_of(gpu, i);
    double difference = 0, all = 0;
    for (size_t k = 0; k < a.size(); k++) {
      difference += std::pow(static_cast<double>(a[k]) - static_cast<double>(b[k]), 2);
      all += std::pow(static_cast<double>(a[k]), 2);
    }
    if (cpu.trainer.saved_tensors()[i].path.empty()) {
      EXPECT_LT(std::sqrt(difference / all), 2e-2);
    }
  }
  EXPECT_EQ(cpu.runtime.memory.peaks(), gpu.runtime.memory.peaks());
}

TEST(SimulatedGpu, DrawsTheSameDropoutAndRecomputes) {
  Config config = small_config();
  config.model.dropout = 0.2;
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  config.memory.lm_head_chunks = 2;
  expect_same_course(config);
}

// What the CPU and the kernels round differs, and so may where gradients begin to overflow, by one halving.
TEST(SimulatedGpu, LowersTheLossScaleAsTheCpu) {
  Config config = small_config();
  config.precision.compute = ComputeType::fp16;
  config.precision.initial_loss_scale = 0x1p24;
  config.precision.delayed_shift = 1;
  config.model.layers = 1;
  config.batch = {.sequence_length = 7, .global_batch_size = 1, .microbatch_size = 1};
  SmallRun cpu(config), gpu(config, World::cuda);
  const auto first_update = [](SmallRun& run) {
    StepScalars step = run.step(0);
    for (int i = 0; i < 20 && step.decision == Decision::overflow; i++) step = run.step(0);
    return step;
  };
  const StepScalars a = first_update(cpu), b = first_update(gpu);
  EXPECT_EQ(a.decision, Decision::update);
  EXPECT_EQ(b.decision, Decision::update);
  EXPECT_LT(a.loss_scale, 0x1p24);
  EXPECT_LE(std::abs(std::log2(a.loss_scale / b.loss_scale)), 1);
  EXPECT_NEAR(a.loss, b.loss, a.loss / 2048);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 4.0 / 2048 * a.grad_norm);
}

// Kernels alone and fused give the same bits, and a copy that is late is waited for.
TEST(SimulatedGpu, WhatIsRecomputedOrOffloadedChangesNoBit) {
  using Kind = ActivationCheckpointing::Kind;
  for (ComputeType type : {ComputeType::fp32, ComputeType::bf16}) {
    Config config = small_config();
    config.batch.global_batch_size = 2;
    config.model.dropout = 0.2;
    config.precision.compute = type;
    const auto trained = [&](const MemoryConfig& memory) {
      config.memory = memory;
      SmallRun run(config, World::cuda);
      std::vector<float> all;
      for (const StepScalars& step : run.steps(2))
        for (double scalar : {step.loss, step.grad_norm}) all.push_back(static_cast<float>(scalar));
      for (const Unit& unit : run.units())
        for (float weight : on_host(run.runtime.stream, unit.master())) all.push_back(weight);
      return all;
    };
    const std::vector<float> kept = trained({});
    if (type == ComputeType::fp32) {
      EXPECT_EQ(trained({.activation_checkpointing = {Kind::each}, .offload_activations = true}), kept);
      EXPECT_EQ(trained({.activation_checkpointing = {Kind::group, 2}, .offload_optimizer = 0.5}), kept);
    } else {
      EXPECT_EQ(trained({.activation_checkpointing = {Kind::selective}}), kept);
      EXPECT_EQ(trained({.activation_checkpointing = {}, .offload_optimizer = 1, .offload_parameters = true}), kept);
    }
  }
}

// Copies are begun where the plan has them, and on machines whose link is fast enough for it no work waits for one.
TEST(SimulatedGpu, OffloadsAsPlanned) {
  Config config = small_config();
  config.model.layers = 8;
  config.memory = {.activation_checkpointing = {ActivationCheckpointing::Kind::each},
                   .offload_activations = true,
                   .activation_loading_horizon = 2};
  SmallRun run(config, World::cuda);
  run.runtime.stream.trace().keep(TraceLevel::everything);
  run.step(0);
  const std::vector<TraceEvent> done = run.runtime.stream.trace().events();
  const std::vector<TraceEvent> planned = rehearse(config, run.plan, TraceLevel::everything).trace;
  EXPECT_EQ(done, planned);
  Hardware h = load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml");
  h.calibrated.launch = 0;
  for (const auto& [link, hidden] : {std::pair{1e4, true}, {1e-4, false}}) {
    h.host.link = link;
    const TimeLine line = time_line({}, {stage_trace(0, done)}, h, processor_of(h, config.precision.compute, 1));
    EXPECT_EQ(line.copies[0].all, 2 * 3 * 5) << "there and back, of 3 microbatches, 8 layers but 3";
    EXPECT_EQ(line.copies[0].hidden == line.copies[0].all, hidden);
  }
}

// All of a step is enqueued and none of it done when step() returns: the GPU never waits for the host within one.
TEST(SimulatedGpu, TheHostWaitsForNothingWithinAStep) {
  Config config = small_config();
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  config.memory.offload_activations = true;
  SmallRun run(config, World::cuda);
  run.step(0);  // which makes what is used again
  ASSERT_EQ(simt::work_enqueued(), 0);
  const auto launches = [&] {
    int64_t n = 0;
    for (const OpRecord& op : run.runtime.stream.log()) n += op.launches;
    return n;
  };
  const int64_t before = launches();
  StepScalars scalars;
  const Stream::Ticket ticket = run.trainer.step(1, 5, feed_text(run.config, 5), {}, &scalars);
  EXPECT_GE(simt::work_enqueued(), launches() - before);
  EXPECT_EQ(scalars.loss, 0);
  run.runtime.stream.receive(ticket);
  EXPECT_GT(scalars.loss, 0);
}

// What is saved beside the next step is what it was before that: the update waits for the copies, and the host for
// both.
TEST(SimulatedGpu, CopiesTheStateBesideTheNextStep) {
  for (double on_host : {0.0, 0.5}) {
    Config config = small_config();
    config.model.layers = 1;
    config.checkpoint.asynchronous = true;
    config.memory.offload_optimizer = on_host;
    SmallRun run(config, World::cuda), twin(config, World::cuda);
    int64_t changed = 0;
    for (int64_t step = 0; step < 4; step++) {
      StepScalars scalars;
      const int64_t first = step * config.batch.global_batch_size;
      const Stream::Ticket ticket = run.trainer.step(step, first, feed_text(config, first), {}, &scalars);
      const std::vector<SavedTensor>& copies = run.trainer.copy_state();
      run.runtime.stream.receive(ticket);
      twin.step(step);
      run.step(++step);
      for (size_t i = 0; i < copies.size(); i++) {
        const std::vector<float> then = on_host_of(twin, i), copied = values_of(copies[i].values);
        ASSERT_EQ(copied, then) << "step " << step << ", " << copies[i].path << " of unit " << copies[i].unit;
        changed += on_host_of(run, i) != then;
      }
      twin.step(step);
    }
    EXPECT_GT(changed, 0);
  }
}

// What was enqueued before and what comes after do not matter to a download.
TEST(SimulatedGpu, DownloadsAreReadInOrder) {
  Runtime runtime(World::cuda, {4096, 0, 0, 0, 0, 0}, Mesh::dry(mesh_shape(small_config(), 1), 0));
  Stream& s = runtime.stream;
  const Tensor t = runtime.memory[MemoryClass::parameters].tensor(DType::f32, {3});
  std::vector<float> seen;
  std::vector<Stream::Ticket> tickets;
  for (float v : {1.0f, 2.0f, 3.0f}) {
    s.upload("write", {t}, [v](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 3, v); });
    tickets.push_back(s.download("read", t, [&](Tensor host) { seen.push_back(host.data<float>()[2]); }));
  }
  EXPECT_TRUE(seen.empty());
  s.receive(tickets[1]);
  EXPECT_EQ(seen, (std::vector<float>{1, 2}));
  s.receive(tickets[0]);  // again: nothing
  s.synchronize();
  EXPECT_EQ(seen, (std::vector<float>{1, 2, 3}));
}

}  // namespace
}  // namespace megalith
