#include "trainer/train/run.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <optional>

#include "trainer/runtime/machine.h"
#include "trainer/train/agreement.h"
#include "trainer/train/checkpointer.h"
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

}  // namespace

void run_training(Config config, const MpiSession& mpi) {
  shake_hands(config, mpi);
  const int threads = use_threads(mpi.ranks_on_this_node());

  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<Loader> data;
  std::optional<HeldOut> held_out;
  Plan plan;
  Rehearsal rehearsal;
  together(mpi, [&] {
    CHECK(
        config.run.device != Device::cuda,
        "run.device = cuda: this build has no CUDA; use run.device=cpu, or build with the cuda preset once it has it");
    tokenizer = open_tokenizer(config);
    plan = make_plan(config, mpi.size(), mpi.rank());
    data = open_data("data.train", config.data.train, config, config.data.shuffle, mpi.rank(), mpi.size());
    held_out = open_held_out(config, tokenizer.get(), mpi.rank(), mpi.size());
    rehearsal = rehearse(config, plan);
    check_memory(rehearsal.memory, mpi);
    if (mpi.rank() == 0) check_start(config);
  });
  together(mpi, [&] { open_run_folder(config, mpi.rank()); });

  auto world = mpi.world();
  Mesh mesh(plan.mesh, *world);
  std::optional<Runtime> runtime;
  std::optional<Trainer> trainer;
  together(mpi, [&] {
    runtime.emplace(World::cpu, rehearsal.memory, std::move(mesh));
    trainer.emplace(config, plan, *runtime);
  });
  Checkpointer checkpointer(config, mpi, *trainer);

  const auto spec = model_spec(config.model);
  spdlog::info("parameters {}, layers {}; ranks {}, threads {} each, {}, {}; run folder {}", num_parameters(spec),
               config.model.layers, mpi.size(), threads, to_string(config.parallel.sharding_strategy),
               to_string(config.precision.compute), config.run.output);
  spdlog::info("planned memory per rank: {:.1f} MiB", static_cast<double>(total(rehearsal.memory)) / (1 << 20));
  if (plan.batch.idle() > 0)
    spdlog::warn(
        "warning: batch.global_batch_size = {} does not fill {} microbatches of {} on {} ranks: {:.0f} % of the work "
        "is "
        "on masked sequences",
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

  double hardware_flops = 0;
  for (const OpRecord& op : rehearsal.ops) hardware_flops += op.flops;
  const int64_t G = config.batch.global_batch_size, T = config.batch.sequence_length;
  std::optional<Metrics> metrics;
  together(mpi, [&] {
    metrics.emplace(config.run.output, mpi.rank() == 0, progress.step,
                    Rates{.tokens_per_step = static_cast<double>(G * T),
                          .model_flops_per_token = model_flops_per_token(config.model, T, true),
                          .hardware_flops_per_step = hardware_flops * mpi.size(),
                          .devices = mpi.size(),
                          .steps = config.train.steps,
                          .memory = rehearsal.memory});
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
