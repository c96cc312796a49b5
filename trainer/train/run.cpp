#include "trainer/train/run.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/device.h"
#include "trainer/runtime/gpu.h"
#include "trainer/runtime/machine.h"
#include "trainer/runtime/nccl.h"
#include "trainer/train/agreement.h"
#include "trainer/train/checkpointer.h"
#include "trainer/train/device_choice.h"
#include "trainer/train/handshake.h"
#include "trainer/train/learning_rate.h"
#include "trainer/train/metrics.h"
#include "trainer/train/rehearsal.h"
#include "trainer/train/run_folder.h"
#include "trainer/train/text_data.h"

namespace megalith {

namespace {

void check_memory(const MemorySizes& sizes, const MpiSession& mpi) {
  const int64_t wanted = total(sizes) * mpi.ranks_on_this_node(), present = physical_memory();
  std::string classes;
  for (MemoryClass c : all_memory_classes)
    classes += fmt::format("{}{} {:.2f}", classes.empty() ? "" : ", ", name_of(c),
                           static_cast<double>(sizes[static_cast<size_t>(c)]) / (1 << 30));
  CHECK(
      wanted <= present,
      "this run needs {:.2f} GiB on each of {} ranks of this machine (in GiB: {}), which has {:.2f} GiB; use a smaller "
      "batch.microbatch_size, memory.activation_checkpointing = each, or more machines",
      static_cast<double>(total(sizes)) / (1 << 30), mpi.ranks_on_this_node(), classes,
      static_cast<double>(present) / (1 << 30));
}

// Collective. Ranks on each node, or 0 where nodes have different numbers of them.
int launched_ranks_per_node(const MpiSession& mpi) {
  const std::string here = std::to_string(mpi.ranks_on_this_node());
  for (const std::string& there : mpi.all_gather_text(here))
    if (there != here) return 0;
  return mpi.ranks_on_this_node();
}

// Collective. FLOPs that all ranks execute in a step, and the memory of the fullest of them.
struct JobTotals {
  double flops = 0;
  MemorySizes memory{};
};
JobTotals totals_of(const Rehearsal& rehearsal, const MpiSession& mpi) {
  nlohmann::json mine = {{"flops", 0.0}, {"memory", rehearsal.memory}};
  for (const OpRecord& op : rehearsal.ops) mine["flops"] = mine["flops"].get<double>() + op.flops;
  JobTotals totals;
  for (const std::string& text : mpi.all_gather_text(mine.dump())) {
    const auto rank = nlohmann::json::parse(text);
    totals.flops += rank["flops"].get<double>();
    if (const auto memory = rank["memory"].get<MemorySizes>(); total(memory) > total(totals.memory))
      totals.memory = memory;
  }
  return totals;
}

}  // namespace

void run_training(Config config, const MpiSession& mpi) {
  shake_hands(config, mpi);
  const int threads = use_threads(mpi.ranks_on_this_node());

  // Checkpoints cannot be written from a GPU's memory yet, so nothing is trained there, and auto means the CPU.
  const World where = choose_device(config.run.device == Device::cuda ? Device::cuda : Device::cpu, mpi);
  together(mpi, [&] {
    CHECK(where != World::cuda, "run.device = cuda: checkpoints cannot be written from GPUs yet; use run.device=cpu");
  });
  const int ranks_per_node = launched_ranks_per_node(mpi);

  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<Loader> data;
  std::optional<HeldOut> held_out;
  Plan plan;
  Rehearsal rehearsal;
  together(mpi, [&] {
    tokenizer = open_tokenizer(config);
    Config placed = config;  // what is written down stays as it was asked for
    if (placed.parallel.ranks_per_node == 0) placed.parallel.ranks_per_node = ranks_per_node;
    plan = make_plan(placed, mpi.size(), mpi.rank());
    data = open_data("data.train", config.data.train, config, config.data.shuffle, mpi.rank(), mpi.size());
    held_out = open_held_out(config, tokenizer.get(), mpi.rank(), mpi.size());
    rehearsal = rehearse(config, plan);
    where == World::cuda ? check_gpu_memory(rehearsal.memory) : check_memory(rehearsal.memory, mpi);
    if (mpi.rank() == 0) check_start(config);
  });
  together(mpi, [&] { open_run_folder(config, mpi.rank()); });

  std::optional<NcclSession> nccl;
  if (where == World::cuda && mpi.size() > 1) together(mpi, [&] { nccl.emplace(mpi, NcclOptions{}); });
  auto world = nccl ? nccl->world() : mpi.world();
  Mesh mesh(plan.mesh, *world);
  std::optional<Runtime> runtime;
  std::optional<Trainer> trainer;
  together(mpi, [&] {
    runtime.emplace(where, rehearsal.memory, std::move(mesh));
    if (nccl) runtime->stream.on_idle([&] { nccl->check(); });
    trainer.emplace(config, plan, *runtime);
  });
  Checkpointer checkpointer(config, mpi, *trainer);

  const auto spec = model_spec(config.model);
  spdlog::info("parameters {}, layers {}; {}, {} threads each, {}, {}; run folder {}", num_parameters(spec),
               config.model.layers, plan.mesh.summary(), threads, to_string(config.parallel.sharding_strategy),
               to_string(config.precision.compute), config.run.output);
  if (where == World::cuda) {
    const device::Properties gpu = device::properties();
    spdlog::info("each rank on a GPU; rank {}: {}, compute capability {}.{}, {:.1f} GiB, driver for CUDA {}",
                 mpi.rank(), gpu.name, gpu.major, gpu.minor, static_cast<double>(gpu.memory) / (1 << 30), gpu.driver);
  }
  if (plan.batch.idle() > 0)
    spdlog::warn(
        "warning: batch.global_batch_size = {} does not fill {} microbatches of {} on {} data-parallel ranks: {:.0f} % "
        "of the work is on masked sequences",
        plan.batch.batch, plan.batch.num_microbatches(), plan.batch.microbatch, plan.batch.ranks,
        100 * plan.batch.idle());

  Progress progress;
  if (const std::optional<Progress> resumed = checkpointer.resume()) {
    progress = *resumed;
    spdlog::info("resumed after step {}", progress.step);
  } else if (!config.checkpoint.init_from.empty()) {
    checkpointer.initialize_weights();
    spdlog::info("weights from {}", config.checkpoint.init_from);
  } else {
    trainer->initialize();
  }

  const JobTotals totals = totals_of(rehearsal, mpi);
  const int64_t G = config.batch.global_batch_size, T = config.batch.sequence_length;
  spdlog::info("planned memory of the fullest rank: {:.1f} MiB", static_cast<double>(total(totals.memory)) / (1 << 20));
  std::optional<Metrics> metrics;
  together(mpi, [&] {
    metrics.emplace(config.run.output, mpi.rank() == 0, progress.step,
                    Rates{.tokens_per_step = static_cast<double>(G * T),
                          .model_flops_per_token = model_flops_per_token(config.model, T, true),
                          .hardware_flops_per_step = totals.flops,
                          .devices = mpi.size(),
                          .steps = config.train.steps,
                          .memory = totals.memory});
  });

  auto evaluate = [&] {
    const double loss = trainer->evaluate(held_out->sequences, feed_from(held_out->loader, 0, config.model.vocab));
    metrics->evaluation(progress.step, loss, held_out->sequences * T, held_out->bytes);
  };
  auto save = [&] {
    together(mpi, [&] { metrics->sync(); });
    const std::string path = checkpointer.save(progress);
    spdlog::info("step {}  checkpoint {}", progress.step, path);
  };

  const auto start = std::chrono::steady_clock::now();
  bool stop = false;
  while (progress.step < config.train.steps && !stop) {
    const double minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 60;
    const bool enough = config.train.minutes > 0 && minutes >= config.train.minutes && mpi.rank() == 0;
    StepScalars scalars;
    metrics->begin_step();
    trainer->step(progress.step, progress.sequences, feed_from(*data, progress.sequences, config.model.vocab), enough,
                  &scalars);
    runtime->stream.synchronize();
    const double rate = learning_rate_at(config.optimizer, progress.step);
    progress.step++;
    progress.sequences += G;
    metrics->end_step(progress.step, scalars, rate);
    if (!std::isfinite(scalars.loss) || !std::isfinite(scalars.grad_norm))
      throw JobError(
          __FILE__, __LINE__,
          fmt::format("step {}: the loss is {} and the gradient norm {}; the checkpoints in {} are from before. "
                      "Lower optimizer.learning_rate, or set optimizer.gradient_clip",
                      progress.step, scalars.loss, scalars.grad_norm, config.checkpoint.directory));
    stop = scalars.stop_votes > 0;
    const auto due = [&, last = stop || progress.step == config.train.steps](int64_t every) {
      return last || (every > 0 && progress.step % every == 0);
    };
    // In this order, so that a checkpoint stands for a step that is told of completely.
    if (held_out && due(config.train.evaluate_every)) evaluate();
    if (due(config.checkpoint.every)) save();
  }
  spdlog::info("done: {} steps, {} sequences", progress.step, progress.sequences);
}

}  // namespace megalith
