#include "trainer/train/run.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "trainer/runtime/machine.h"
#include "trainer/train/agreement.h"
#include "trainer/train/checkpointer.h"
#include "trainer/train/learning_rate.h"
#include "trainer/train/metrics.h"
#include "trainer/train/rehearsal.h"
#include "trainer/train/text_data.h"

namespace megalith {

namespace {

// Rank 0 writes run.output/config.toml and logs to the console and to log.txt; the others keep silent.
void open_run_folder(const Config& config, int rank) {
  if (rank != 0) {
    spdlog::set_level(spdlog::level::off);
    return;
  }
  const std::filesystem::path folder = config.run.output;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  CHECK(!error, "run.output = {}: cannot create the folder: {}; choose another with run.output=DIR", folder.string(),
        error.message());
  const std::string resolved = (folder / "config.toml").string();
  std::ofstream out(resolved, std::ios::trunc);
  out << to_toml(config);
  out.close();
  CHECK(out.good(), "cannot write {}; is the disk full or the folder read-only? Choose another with run.output=DIR",
        resolved);
  try {
    auto console = std::make_shared<spdlog::sinks::stdout_color_sink_mt>();
    console->set_pattern("%v");
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>((folder / "log.txt").string());
    file->set_pattern("%Y-%m-%d %H:%M:%S %v");
    auto logger = std::make_shared<spdlog::logger>("", spdlog::sinks_init_list{console, file});
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(logger);
  } catch (const spdlog::spdlog_ex& e) {
    FAIL("cannot open {}: {}", (folder / "log.txt").string(), e.what());
  }
}

int64_t total(const MemorySizes& sizes) {
  int64_t sum = 0;
  for (int64_t bytes : sizes) sum += bytes;
  return sum;
}

void check_memory(const MemorySizes& sizes, const MpiSession& mpi) {
  const int64_t wanted = total(sizes) * mpi.ranks_on_this_node(), present = physical_memory();
  std::string classes;
  for (MemoryClass c : all_memory_classes)
    classes += fmt::format("{}{} {:.2f}", classes.empty() ? "" : ", ", name_of(c),
                           static_cast<double>(sizes[static_cast<size_t>(c)]) / (1 << 30));
  CHECK(wanted <= present,
        "this run needs {:.2f} GiB on each of {} ranks of this machine (in GiB: {}), which has {:.2f} GiB; use a smaller "
        "batch.microbatch_size, memory.activation_checkpointing = each, or more machines",
        static_cast<double>(total(sizes)) / (1 << 30), mpi.ranks_on_this_node(), classes,
        static_cast<double>(present) / (1 << 30));
}

// Evaluates on the first sequences of the held-out text: always the same ones, whatever the layout.
struct Evaluation {
  Loader loader;
  int64_t sequences = 0;
  int64_t bytes = 0;  // of text under the targets; 0 without a tokenizer
};

std::optional<Evaluation> open_evaluation(const Config& config, const Tokenizer* tokenizer, const MpiSession& mpi) {
  if (config.data.validation.empty()) {
    CHECK(config.train.evaluate_every == 0,
          "train.evaluate_every = {} but data.validation is empty; name a token file, or set evaluate_every = 0",
          config.train.evaluate_every);
    return std::nullopt;
  }
  Evaluation e{open_data("data.validation", config.data.validation, config, false, mpi.rank(), mpi.size())};
  e.sequences = std::min(e.loader.num_samples(), config.train.evaluate_batches * config.batch.global_batch_size);
  if (tokenizer) e.bytes = target_bytes(e.loader, e.sequences, *tokenizer);
  return e;
}

}  // namespace

void run_training(Config config, const MpiSession& mpi) {
  const int threads = use_threads(mpi.ranks_on_this_node());

  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<Loader> data;
  std::optional<Evaluation> evaluation;
  Plan plan;
  Rehearsal rehearsal;
  together(mpi, [&] {
    CHECK(config.run.device != Device::cuda,
          "run.device = cuda: this build has no CUDA; use run.device=cpu, or build with the cuda preset once it has it");
    tokenizer = open_tokenizer(config);
    plan = make_plan(config, mpi.size(), mpi.rank());
    data = open_data("data.train", config.data.train, config, config.data.shuffle, mpi.rank(), mpi.size());
    evaluation = open_evaluation(config, tokenizer.get(), mpi);
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
  spdlog::info("{} parameters in {} layers, {} ranks with {} threads each, {} and {} in {}", num_parameters(spec),
               config.model.layers, mpi.size(), threads, to_string(config.parallel.sharding_strategy),
               to_string(config.precision.compute), config.run.output);
  spdlog::info("planned memory per rank: {:.1f} MiB", static_cast<double>(total(rehearsal.memory)) / (1 << 20));
  if (plan.batch.idle() > 0)
    spdlog::warn("warning: batch.global_batch_size = {} does not fill {} microbatches of {} on {} ranks: {:.0f} % of the work is "
                 "on masked sequences",
                 plan.batch.batch, plan.batch.num_microbatches(), plan.batch.microbatch, plan.batch.ranks,
                 100 * plan.batch.idle());

  Progress progress;
  if (const std::optional<Progress> resumed = checkpointer.resume()) {
    progress = *resumed;
    spdlog::info("resumed after step {}", progress.step);
  } else if (!config.checkpoint.init_from.empty()) {
    checkpointer.initialize_from(config.checkpoint.init_from);
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
    const double loss =
        trainer->evaluate(evaluation->sequences, feed_from(evaluation->loader, 0, config.model.vocab));
    metrics->evaluation(progress.step, loss, evaluation->sequences * T, evaluation->bytes);
  };
  auto save = [&] {
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
      throw JobError(__FILE__, __LINE__,
                     fmt::format("step {}: the loss is {} and the gradient norm {}; the checkpoints in {} are from before. "
                                 "Lower optimizer.learning_rate, or set optimizer.gradient_clip",
                                 progress.step, scalars.loss, scalars.grad_norm, config.checkpoint.directory));
    stop = scalars.stop_votes > 0;
    const auto due = [&, last = stop || progress.step == config.train.steps](int64_t every) {
      return last || (every > 0 && progress.step % every == 0);
    };
    // In this order, so that a checkpoint stands for a step that is told of completely.
    if (evaluation && due(config.train.evaluate_every)) evaluate();
    if (due(config.checkpoint.every)) save();
  }
  spdlog::info("done: {} steps, {} sequences", progress.step, progress.sequences);
}

}  // namespace megalith
