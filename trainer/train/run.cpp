#include "trainer/train/run.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/base/device.h"
#include "trainer/checkpointing/checkpointer.h"
#include "trainer/communication/transport.h"
#include "trainer/job/agreement.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/handshake.h"
#include "trainer/job/memory_check.h"
#include "trainer/job/nodes.h"
#include "trainer/session/machine.h"
#include "trainer/step/learning_rate.h"
#include "trainer/step/rehearsal.h"
#include "trainer/step/text_data.h"
#include "trainer/train/metrics.h"
#include "trainer/train/run_folder.h"

namespace megalith {

namespace {

// Collective. FLOPs that all ranks execute in a step, and the memory of the fullest of them.
struct JobTotals {
  double flops = 0;
  MemorySizes memory{};
};
JobTotals totals_of(const Rehearsal& rehearsal, const Session& session) {
  nlohmann::json mine = {{"flops", 0.0}, {"memory", rehearsal.memory.bytes}};
  for (const OpRecord& op : rehearsal.ops) mine["flops"] = mine["flops"].get<double>() + op.flops;
  JobTotals totals;
  for (const std::string& text : session.all_gather_text(mine.dump())) {
    const auto rank = nlohmann::json::parse(text);
    totals.flops += rank["flops"].get<double>();
    if (const MemorySizes memory{.bytes = rank["memory"]};
        memory.total(Place::device) > totals.memory.total(Place::device))
      totals.memory = memory;
  }
  return totals;
}

}  // namespace

void run_training(Config config, const Session& session) {
  shake_hands(config, session);
  const int threads = use_threads(session.ranks_on_this_node());

  std::unique_ptr<Tokenizer> tokenizer;
  together(session, [&] { tokenizer = open_tokenizer(config); });
  const DeviceChoice chosen = choose_device(config, session);
  const World where = chosen.world;

  std::optional<Loader> data;
  std::optional<HeldOut> held_out;
  Plan plan;
  Rehearsal rehearsal;
  const Placed on_nodes = placed(config, session);  // what is written down stays as it was asked for
  together(session, [&] {
    plan = make_plan(on_nodes.config, session.size(), session.rank());
    data = open_data("data.train", config.data.train, config, config.data.shuffle, session.rank(), session.size());
    held_out = open_held_out(config, tokenizer.get(), session.rank(), session.size());
    rehearsal = rehearse(config, plan);
    check_memory({{where, rehearsal.memory}}, session.ranks_on_this_node(), chosen.ranks);
    if (session.rank() == 0) check_start(config);
  });
  std::optional<RunFolder> folder;
  together(session, [&] { folder.emplace(config, session.rank()); });

  std::optional<Transport> transport;
  together(session, [&] { transport.emplace(where, config.communication, session); });
  const auto world = transport->world();
  Mesh mesh(plan.mesh, *world);
  // Once more, beside what NCCL and the GEMM library have taken, and before any rank of the GPU takes its share.
  std::unique_ptr<DeviceQueue> queue;
  if (where == World::cuda) {
    together(session, [&] { queue = std::make_unique<DeviceQueue>(); });
    together(session, [&] { check_gpu_memory(rehearsal.memory, chosen.ranks, true); });
  }
  std::optional<Runtime> runtime;
  std::optional<Trainer> trainer;
  together(session, [&] {
    runtime.emplace(where, rehearsal.memory, std::move(mesh), std::move(queue));
    transport->watch(runtime->stream);
    trainer.emplace(config, plan, *runtime);
  });
  Checkpointer checkpointer(config, session, *trainer);

  const auto spec = model_spec(config.model);
  spdlog::info("parameters {}, layers {}; {}, {} threads each, {}, {}; run folder {}", num_parameters(spec),
               config.model.layers, plan.mesh.summary(), threads, to_string(config.parallel.sharding_strategy),
               to_string(config.precision.compute), config.run.output);
  if (where == World::cuda) {
    const device::Properties gpu = device::properties();
    spdlog::info("each rank on a GPU; rank {}: {}, compute capability {}.{}, {:.1f} GiB, driver for CUDA {}{}",
                 session.rank(), gpu.name, gpu.major, gpu.minor, static_cast<double>(gpu.memory) / (1 << 30),
                 gpu.driver, session.size() > 1 ? "; " + transport->name() : "");
  }
  if (!on_nodes.warning.empty()) spdlog::warn("warning: {}", on_nodes.warning);
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

  const JobTotals totals = totals_of(rehearsal, session);
  const int64_t G = config.batch.global_batch_size, T = config.batch.sequence_length;
  spdlog::info("planned memory of the fullest rank: {:.1f} MiB",
               static_cast<double>(totals.memory.total(Place::device)) / (1 << 20));
  std::optional<Metrics> metrics;
  together(session, [&] {
    metrics.emplace(config.run.output, session.rank() == 0, progress.step,
                    Rates{.tokens_per_step = static_cast<double>(G * T),
                          .model_flops_per_token = model_flops_per_token(config.model, T, true),
                          .full_flops_per_token = model_flops_per_token(config.model, T, false),
                          .hardware_flops_per_step = totals.flops,
                          .peak_flops = where == World::cuda ? peak_flops(device::properties().name) : 0,
                          .devices = session.size(),
                          .steps = config.train.steps,
                          .memory = totals.memory});
  });

  auto evaluate = [&] {
    const double loss = trainer->evaluate(held_out->sequences, feed_from(held_out->loader, 0, config.model.vocab));
    metrics->evaluation(progress.step, loss, held_out->sequences * T, held_out->bytes);
  };
  auto save = [&] {
    together(session, [&] { metrics->sync(); });
    const std::string path = checkpointer.save(progress);
    spdlog::info("step {}  checkpoint {}", progress.step, path);
  };

  // Steps that were launched and are not told of. A GPU is given the next step before the last one is read, so that it
  // never waits for the host.
  struct Launched {
    Stream::Ticket ticket = 0;
    StepScalars scalars;
  };
  std::deque<Launched> launched;
  const size_t ahead = where == World::cuda ? 1 : 0;
  bool stop = false;
  auto launch = [&](bool vote_to_stop) {
    Launched& next = launched.emplace_back();
    next.ticket = trainer->step(progress.step, progress.sequences,
                                feed_from(*data, progress.sequences, config.model.vocab), vote_to_stop, &next.scalars);
    progress.step++;
    progress.sequences += G;
  };
  auto tell_oldest = [&] {
    runtime->stream.receive(launched.front().ticket);
    const StepScalars scalars = launched.front().scalars;
    const int64_t step = progress.step - static_cast<int64_t>(launched.size()) + 1;
    launched.pop_front();
    metrics->end_step(step, scalars, learning_rate_at(config.optimizer, step - 1));
    if (!std::isfinite(scalars.loss) || !std::isfinite(scalars.grad_norm))
      throw JobError(
          __FILE__, __LINE__,
          fmt::format("step {}: the loss is {} and the gradient norm {}; the checkpoints in {} are from before. "
                      "Lower optimizer.learning_rate, or set optimizer.gradient_clip",
                      step, scalars.loss, scalars.grad_norm, config.checkpoint.directory));
    stop = stop || scalars.stop_votes > 0;
  };

  const auto start = std::chrono::steady_clock::now();
  metrics->start_clock();
  while (progress.step < config.train.steps && !stop) {
    const double minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 60;
    launch(config.train.minutes > 0 && minutes >= config.train.minutes && session.rank() == 0);
    while (launched.size() > ahead) tell_oldest();

    const auto due = [&](int64_t every) {
      return stop || progress.step == config.train.steps || (every > 0 && progress.step % every == 0);
    };
    const auto evaluates = [&] { return held_out && due(config.train.evaluate_every); };
    const auto saves = [&] { return due(config.checkpoint.every); };
    if (!evaluates() && !saves()) continue;
    // In this order, so that a checkpoint stands for a step that is told of completely.
    while (!launched.empty()) tell_oldest();
    if (evaluates()) evaluate();
    if (saves()) save();
    metrics->start_clock();
  }
  spdlog::info("done: {} steps, {} sequences", progress.step, progress.sequences);
}

}  // namespace megalith
