// Makes the members of a Run.
#include "checkpoints/checksum.h"
#include "kernels/stream/device.h"
#include "trainer/checkpointing/sample_orders.h"
#include "trainer/checkpointing/shared_folder.h"
#include "trainer/job/agreement.h"
#include "trainer/job/content.h"
#include "trainer/job/ranks_agree.h"
#include "trainer/log/log.h"
#include "trainer/machine/machine.h"
#include "trainer/machine/version.h"
#include "trainer/train/run.h"
#include "trainer/train/run_header.h"

namespace megalith {

namespace {

// Collective. Returns make() of this rank after it has returned on all ranks.
template <class Make>
auto made_together(const Session& session, const Make& make) {
  decltype(make()) made;
  together(session, [&] { made = make(); });
  return made;
}

policy::Rules rules_of(const Config& config, bool validates, bool on_gpu) {
  return {.steps = config.train.steps,
          .batch = config.batch.global_batch_size,
          .steps_ahead = on_gpu ? 1 : 0,
          .evaluate_every = config.train.evaluate_every,
          .save_every = config.checkpoint.every,
          .sample_every = config.train.sample_every,
          .max_bad_steps = config.train.max_bad_steps,
          .validates = validates,
          .keep_best = config.checkpoint.keep_best,
          .early_stopping_patience = config.train.early_stopping_patience,
          .asynchronous_saves = saves_asynchronously(config.checkpoint),
          .train_minutes = config.train.minutes,
          .save_minutes = config.checkpoint.minutes,
          .patience = config.checkpoint.patience};
}

}  // namespace

Run::Run(Config config, const Session& session, const Forecast& forecast)
    : session_(session),
      config_(std::move(config)),
      threads_(meet()),
      tokenizer_(open_run_tokenizer(config_, session)),
      work_(config_, session),
      samples_(config_, session_, tokenizer_.get()),
      inputs_(open_inputs(config_, session, work_, tokenizer_.get(), threads_)),
      folder_(open_folder()),
      preemption_(config_.checkpoint, session),
      resumer_(config_, session, open_trainer(), inputs_.fingerprint),
      rules_(rules_of(config_, !inputs_.validation.empty(), work_.device.world == World::cuda)),
      state_(begin_or_resume()),
      checkpointer_(config_, session, *work_.trainer, resumer_.record()),
      saves_(config_, session, checkpointer_, preemption_),
      load_(planned_load()),
      metrics_(open_metrics()),
      profiler_(
          made_together(session, [&] { return std::make_unique<StepProfiler>(config_, session, work_, forecast); })),
      steps_(config_, session, work_, inputs_.data, *profiler_, *metrics_) {}

int Run::meet() {
  check_ranks_agree(config_, session_);
  return use_threads(session_.ranks_on_this_node());
}

std::unique_ptr<RunFolder> Run::open_folder() {
  auto folder = made_together(session_, [&] {
    auto opened = std::make_unique<RunFolder>(config_, tokenizer_.get(), session_.rank());
    if (session_.rank() == 0) keep_checked(config_, inputs_);
    return opened;
  });
  check_all_see(config_.checkpoint.directory, session_);
  return folder;
}

Trainer& Run::open_trainer() {
  if (const std::string trouble = session_.dump_into(config_.run.output + "/calls", config_.run.output + "/log.txt");
      !trouble.empty())
    log_warning("{}", trouble);
  work_.open();
  return *work_.trainer;
}

policy::State Run::begin_or_resume() {
  log_run_header(config_, session_, work_, threads_);
  const std::optional<Progress> resumed = resumer_.resume();
  resumer_.resume_data(inputs_.data);
  if (session_.rank() == 0)  // it reads tokens
    log_data(config_, inputs_);
  if (resumed) {
    log_info("resumed after step {}", resumed->step);
  } else if (!config_.checkpoint.init_from.empty()) {
    resumer_.initialize_weights();
    log_info("weights from {}", config_.checkpoint.init_from);
  } else {
    work_.trainer->initialize();
  }
  return policy::start(rules_, resumed.value_or(Progress{}), newest_checkpoint(config_.checkpoint, session_));
}

Run::Load Run::planned_load() const {
  Load load{.process = work_.process_memory(threads_)};
  double flops = 0;
  for (const OpRecord& op : work_.rehearsal.ops) flops += op.flops;
  const std::tuple mine(flops, work_.rehearsal.memory.bytes, load.process.sums, load.process.save);
  for (const auto& [theirs, memory, sums, save] : of_all_ranks(session_, mine)) {
    load.flops += theirs;
    const MemorySizes sizes{memory};
    if (sizes.total(MemoryPlace::device) <= load.memory.total(MemoryPlace::device)) continue;
    load.memory = sizes;
    load.process.sums = sums;
    load.process.save = save;
  }
  log_memory(load.memory, load.process);
  log_disk(config_, session_, checkpointer_.bytes(), state_.progress.step);
  return load;
}

std::unique_ptr<Metrics> Run::open_metrics() {
  return made_together(session_, [&] {
    return std::make_unique<Metrics>(config_.run.output, session_.rank() == 0, state_.progress.step, rates(), header(),
                                     Reporting{config_.train.log_every, config_.run.tensorboard});
  });
}

Rates Run::rates() const {
  const int64_t T = config_.batch.sequence_length;
  return {.tokens_per_step = static_cast<double>(config_.batch.global_batch_size * T),
          .masked = config_.data.masked,
          .model_flops_per_token = model_flops_per_token(config_.model, T, true),
          .full_flops_per_token = model_flops_per_token(config_.model, T, false),
          .hardware_flops_per_step = load_.flops,
          .peak_flops = work_.device.world == World::cuda ? peak_flops(device::properties().name) : 0,
          .devices = session_.size(),
          .steps = config_.train.steps,
          .tokens_before = tokens_of_samples(resumer_.record().orders, state_.progress.sequences, T),
          .memory = load_.memory,
          .process = load_.process};
}

RunHeader Run::header() const {
  const std::string text = to_toml(config_);
  const Resumer::Origin& origin = resumer_.origin();
  const bool of_another = !origin.decay.empty() || !origin.checkpoint.starts_with(config_.checkpoint.directory + "/");
  return {.version = version(),
          .config_digest = hex(checksum_of(text.data(), static_cast<int64_t>(text.size()))),
          .layout = work_.plan.mesh.summary(),
          .sharding_strategy = to_string(config_.parallel.sharding_strategy),
          .compute = to_string(config_.precision.compute),
          .device = work_.device.world == World::cuda ? device::properties().name : "CPU",
          .parameters = num_parameters(model_spec(config_.model)),
          .threads = threads_,
          .command = command_line(),
          .fingerprint = inputs_.fingerprint.value_or(RunFingerprint{}),
          .validation = session_.rank() == 0 ? content_of_validation(inputs_.validation) : "",
          .resumed_from = of_another ? origin.checkpoint : "",
          .other_decay = origin.decay};
}

}  // namespace megalith
