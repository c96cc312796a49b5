#include "trainer/train/run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>

#include "checkpoints/checksum.h"
#include "checkpoints/directory.h"
#include "kernels/base/counted.h"
#include "kernels/base/device.h"
#include "trainer/checkpointing/shared_folder.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/job/content.h"
#include "trainer/job/handshake.h"
#include "trainer/job/log.h"
#include "trainer/job/memory_check.h"
#include "trainer/job/version.h"
#include "trainer/session/machine.h"
#include "trainer/step/held_out_overlap.h"
#include "trainer/step/learning_rate.h"
#include "trainer/train/bad_step_file.h"
#include "trainer/train/introduction.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

namespace {

// The run folder's copy stands in for a tokenizer that is gone, where the run goes on.
std::unique_ptr<Tokenizer> open_run_tokenizer(Config& config) {
  const bool gone = !std::filesystem::is_directory(tokenizer_path(config.data));
  if (gone && std::filesystem::is_directory(run_tokenizer(config)) &&
      !list_checkpoints(config.checkpoint.directory).empty())
    config.data.tokenizer = run_tokenizer(config);
  return open_tokenizer(config);
}

}  // namespace

Run::Run(Config config, const Session& session, const Forecast& forecast)
    : session_(session), config_(std::move(config)) {
  shake_hands(config_, session);
  const int threads = use_threads(session.ranks_on_this_node());
  std::unique_ptr<Tokenizer> tokenizer;
  together(session, [&] {
    check_open_files();
    tokenizer = open_run_tokenizer(config_);
  });
  std::optional<Course> course;
  work_.emplace(config_, session);
  const std::string checked_path = config_.run.output + "/checked-tokens.json";
  together(session, [&] {
    work_->rehearse();
    const CheckedTokens checked(checked_path);
    data_ = open_data("data.train", config_.data.train, config_, config_.data.shuffle, session.rank(), session.size(),
                      checked);
    held_out_ = open_held_out(config_, tokenizer.get(), session.rank(), session.size(), checked);
    if (held_out_ && session.rank() == 0) trained_on_held_out_ = trains_on_held_out(config_, *data_, *held_out_);
    const DeviceChoice& device = work_->device;
    if (device.world == World::cpu)
      process_ =
          process_memory(work_->plan.mesh, session.rank(), work_->rehearsal.trace, work_->rehearsal.saved, threads);
    check_memory({{device.world, work_->rehearsal.memory, process_.to_come()}}, session.ranks_on_this_node(),
                 device.ranks);
    if (session.rank() != 0) return;
    course = course_of(config_, tokenizer.get(), *data_);
    check_start(config_, *course);
  });
  together(session, [&] {
    folder_.emplace(config_, std::move(tokenizer), session.rank());
    if (session.rank() == 0)  // all ranks have read these
      keep_checked(checked_path, *data_, held_out_ ? &*held_out_ : nullptr, config_.model.vocab);
  });
  check_all_see(config_.checkpoint.directory, session);
  ending_.emplace(config_.checkpoint, session);
  if (const std::string trouble = session.remember_in(config_.run.output + "/calls", config_.run.output + "/log.txt");
      !trouble.empty())
    log_warning("{}", trouble);
  work_->open();
  checkpointer_.emplace(config_, session, *work_->trainer, course);
  introduce(config_, session, *work_, threads);
  if (session.rank() == 0)  // it reads tokens
    introduce_data(config_, *data_, held_out_ ? &*held_out_ : nullptr, trained_on_held_out_);
  set_weights();

  add_up_plans();
  introduce_memory(memory_, process_);
  introduce_disk(config_, session, checkpointer_->bytes(), progress_.step);
  together(session, [&] {
    metrics_.emplace(config_.run.output, session.rank() == 0, progress_.step, rates(),
                     start(threads, course.value_or(Course{})),
                     Reporting{config_.train.log_every, config_.run.tensorboard});
  });
  together(session, [&] { books_.emplace(config_, session, *work_, forecast); });
}

void Run::add_up_plans() {
  double flops = 0;
  for (const OpRecord& op : work_->rehearsal.ops) flops += op.flops;
  const std::tuple mine(flops, work_->rehearsal.memory.bytes, process_.sums, process_.save);
  for (const auto& [theirs, memory, sums, save] : of_all_ranks(session_, mine)) {
    flops_ += theirs;
    const MemorySizes sizes{memory};
    if (sizes.total(Place::device) <= memory_.total(Place::device)) continue;
    memory_ = sizes;
    process_.sums = sums;
    process_.save = save;
  }
}

void Run::set_weights() {
  if (const std::optional<Progress> resumed = checkpointer_->resume()) {
    progress_ = *resumed;
    log_info("resumed after step {}", progress_.step);
  } else if (!config_.checkpoint.init_from.empty()) {
    checkpointer_->initialize_weights();
    log_info("weights from {}", config_.checkpoint.init_from);
  } else {
    work_->trainer->initialize();
  }
  last_update_ = progress_;
  saves_.emplace(config_, session_, *checkpointer_, *ending_, progress_);
}

Rates Run::rates() const {
  const int64_t T = config_.batch.sequence_length;
  return {.tokens_per_step = static_cast<double>(config_.batch.global_batch_size * T),
          .model_flops_per_token = model_flops_per_token(config_.model, T, true),
          .full_flops_per_token = model_flops_per_token(config_.model, T, false),
          .hardware_flops_per_step = flops_,
          .peak_flops = work_->device.world == World::cuda ? peak_flops(device::properties().name) : 0,
          .devices = session_.size(),
          .steps = config_.train.steps,
          .tokens_before = progress_.sequences * T,
          .memory = memory_,
          .process = process_};
}

Start Run::start(int threads, Course course) const {
  const std::string text = to_toml(config_);
  return {.version = version(),
          .config_digest = hex(checksum_of(text.data(), static_cast<int64_t>(text.size()))),
          .layout = work_->plan.mesh.summary(),
          .sharding_strategy = to_string(config_.parallel.sharding_strategy),
          .compute = to_string(config_.precision.compute),
          .device = work_->device.world == World::cuda ? device::properties().name : "CPU",
          .parameters = num_parameters(model_spec(config_.model)),
          .threads = threads,
          .command = command_line(),
          .course = std::move(course),
          .held_out = held_out_ && session_.rank() == 0 ? content_of_sources(held_out_->loader) : ""};
}

int Run::train() {
  start_ = std::chrono::steady_clock::now();
  saves_->begin();
  metrics_->start_clock(books_->start(progress_.step));
  ending_->begin(progress_.step);
  const bool was_done = progress_.step >= config_.train.steps;
  try {
    train_to_the_end();
  } catch (const JobError&) {  // which all ranks have: what they save beside the steps is not lost for it
    try {
      saves_->finish();
    } catch (const JobError& another) {
      log_warning("{}", another.what());
    }
    throw;
  }
  metrics_->say_last_step();
  books_->finish();
  const bool saved = saves_->newest() == progress_.step, all = saved && !lacks_evaluation_ && due(0);
  if (ending_->agreed() && !all) return ending_->say(saved);
  check_validation();
  log_info("done: {}, {}{}{}", counted(progress_.step, "step"), counted(progress_.sequences, "sequence"),
           progress_.skipped > 0 ? fmt::format("; skipped: {}", progress_.skipped) : "",
           progress_.step < config_.train.steps
               ? fmt::format("; train.minutes = {:g} are over before step {}, to which the same command goes on",
                             config_.train.minutes, config_.train.steps)
           : was_done
               ? fmt::format("; they were made before, and nothing was left to do. A larger train.steps goes on, and "
                             "another run.output begins anew")
               : "");
  return 0;
}

void Run::train_to_the_end() {
  // A GPU is given the next step before the last one is read, so that it never waits for the host.
  const size_t ahead = work_->device.world == World::cuda ? 1 : 0;
  std::deque<Launched> launched;
  const auto report_all_but = [&](size_t last) {
    for (; launched.size() > last; launched.pop_front()) report(launched.front());
  };
  while (progress_.step < config_.train.steps && !stop_) {
    launched.push_back(step());
    report_all_but(ahead);
    if (checkpointer_->all_ended(phases_)) between(Account::checkpoint, [&] { saves_->go_on(); });
    if (!evaluates() && !saves()) continue;
    // In this order, so that a checkpoint stands for a step that is reported completely.
    report_all_but(0);
    if (stop_ && progress_.step < config_.train.steps)
      ending_->agree(checkpointer_->bytes(), config_.train.evaluate_batches);
    if (evaluates()) between(Account::evaluation, [&] { ending_->evaluate([&] { evaluate(); }); });
    if (saves()) between(Account::checkpoint, [&] { save(); });
  }
  if (checkpointer_->saving()) between(Account::checkpoint, [&] { saves_->finish(); });
}

Run::Launched Run::step() {
  Launched launched{.number = progress_.step + 1, .first_sequence = progress_.sequences};
  if (CallGroup* calls = session_.calls()) calls->ring().begin_step(launched.number);
  books_->begin_launch(launched.number);
  Stream& s = work_->runtime->stream;
  const bool op_by_op = s.ops_are_looked_at();
  const GraphCounts before = s.graphs();
  launched.ticket = work_->trainer->step(
      progress_.step, progress_.sequences, feed_from(*data_, progress_.sequences, config_.model.vocab),
      [this] { return vote(); }, launched.scalars.get());
  if (!op_by_op) say_graphs(s.graphs() - before);
  books_->end_launch(launched.number);
  progress_.step++;
  progress_.sequences += config_.batch.global_batch_size;
  return launched;
}

// Once: the first step notes what is launched, the second makes the graphs.
void Run::say_graphs(const GraphCounts& of_step) {
  const GraphCounts& planned = work_->rehearsal.graphs;
  if (said_graphs_ || planned.graphs == 0 || work_->device.world != World::cuda) return;
  const bool as_planned = of_step == planned;
  if (!as_planned && ++without_graphs_ < 3) return;
  said_graphs_ = true;
  int64_t launches = 0;
  for (const OpRecord& op : work_->rehearsal.ops) launches += op.launches;
  const std::string text =
      fmt::format("run.cuda_graphs: {} of the {} ops of a step are in {}, the others launched one by one", of_step.ops,
                  launches, counted(of_step.graphs, "graph"));
  if (as_planned) return log_info("{}", text);
  log_warning("{}; {} in {} were to be: the others are not the same in each step", text, planned.ops,
              counted(planned.graphs, "graph"));
}

// Rank 0's clock counts.
Votes Run::vote() const {
  const std::chrono::duration<double> trained = std::chrono::steady_clock::now() - start_;
  const bool first = session_.rank() == 0, has_end = config_.train.minutes > 0;
  return {.stop = ending_->asked() || (first && has_end && trained.count() >= 60 * config_.train.minutes),
          .save = first && saves_->is_due(),
          .phases = checkpointer_->phases()};
}

void Run::report(const Launched& step) {
  work_->runtime->stream.receive(step.ticket);
  const StepScalars& scalars = *step.scalars;
  const Measured measured = books_->report(step.number, scalars);
  metrics_->end_step({.step = step.number,
                      .scalars = scalars,
                      .learning_rate = learning_rate_at(config_.optimizer, step.number - 1),
                      .samples = {step.first_sequence, step.first_sequence + config_.batch.global_batch_size},
                      .measured = measured});
  if (books_->trace_is_over(step.number)) metrics_->start_clock(books_->write_trace());
  stop_ = stop_ || scalars.stop_votes > 0;
  save_due_ = save_due_ || scalars.save_votes > 0;
  phases_ = scalars.phases;
  ending_->trained(step.number);
  progress_.sanity.see(step.number, scalars.skipped() && scalars.decision != Decision::overflow, scalars.loss);
  if (scalars.skipped()) return report_skipped(step);
  progress_.skipped_in_a_row = 0;
  last_update_ = {.step = step.number,
                  .sequences = step.first_sequence + config_.batch.global_batch_size,
                  .skipped = progress_.skipped,
                  .sanity = progress_.sanity};
}

void Run::report_skipped(const Launched& step) {
  progress_.skipped++;
  if (step.scalars->decision == Decision::overflow) {  // the remedy is made
    log_info("step {} is skipped, {} in all: {}", step.number, progress_.skipped, why_skipped(config_, *step.scalars));
    return;
  }
  progress_.skipped_in_a_row++;
  log_warning("step {} is skipped, {} in a row and {} in all: {}", step.number, progress_.skipped_in_a_row,
              progress_.skipped, why_skipped(config_, *step.scalars));
  const std::string seen = seen_by_this_rank(work_->plan, *step.scalars, *data_, step.first_sequence);
  for (const std::string& line : lines_of(said_by_ranks(session_, seen))) log_warning("step {}: {}", step.number, line);
  if (progress_.skipped_in_a_row >= config_.train.max_bad_steps) give_up(step);
  keep(step, false);
}

void Run::keep(const Launched& step, bool ended_the_run) {
  keep_bad_step(
      config_, session_, work_->plan, *data_,
      {.number = step.number,
       .samples = {step.first_sequence, step.first_sequence + config_.batch.global_batch_size},
       .scalars = *step.scalars,
       .learning_rate = learning_rate_at(config_.optimizer, step.number - 1),
       .progress = progress_,
       .ended_the_run = ended_the_run,
       .checkpoint = saves_->newest() > 0 ? checkpoint_path(config_.checkpoint.directory, saves_->newest()) : "",
       .checkpoint_step = saves_->newest()});
}

// A step that was launched since is skipped as well (decide_update), so the weights are those of the last update.
void Run::give_up(const Launched& step) {
  work_->runtime->stream.synchronize();  // which fills its scalars while they are there
  saves_->finish();
  if (saves_->newest() < last_update_.step) saves_->save_at_last(last_update_);  // it may have spoilt the weights
  keep(step, true);
  const WayBack back = checkpointer_->go_back(progress_.sanity, last_weights());
  const int64_t first = step.number - progress_.skipped_in_a_row + 1;
  const std::string steps =
      first == step.number ? fmt::format("step {} was", first) : fmt::format("steps {} to {} were", first, step.number);
  throw JobError(
      __FILE__, __LINE__,
      fmt::format("{} skipped, and train.max_bad_steps = {}; in the last, {}; {}. {}", steps,
                  config_.train.max_bad_steps, why_skipped(config_, *step.scalars), way_back_in_words(config_, back),
                  remedy_of(config_, step.scalars->decision, step.number)));
}

// Tried on the batch of the last update, which was good for one: where its loss is sane still, it is not the weights
// that are wrong.
LastWeights Run::last_weights() {
  const int64_t batch = config_.batch.global_batch_size, first = last_update_.sequences - batch;
  if (first < 0) return {};
  const double loss = work_->trainer->evaluate(batch, feed_from(*data_, first, config_.model.vocab));
  return {.since = last_update_.step, .sane = progress_.sanity.is_sane(loss)};
}

std::optional<double> Run::held_out_loss() {
  const int64_t all = held_out_->sequences, batch = config_.batch.global_batch_size, last = (all - 1) / batch;
  double sum = 0;
  for (int64_t made = 0; made <= last; made++) {
    if (made > 0 && !ending_->goes_on_evaluating(checkpointer_->bytes(), made, last + 1)) return {};
    const int64_t first = made * batch, n = std::min(batch, all - first);
    const Feed feed = feed_from(held_out_->loader, first, config_.model.vocab);
    sum += static_cast<double>(n) * work_->trainer->evaluate(n, feed);
  }
  return sum / static_cast<double>(all);
}

void Run::evaluate() {
  const std::optional<double> loss = held_out_loss();
  stop_ = stop_ || ending_->agreed();
  if (lacks_evaluation_ = !loss; lacks_evaluation_) return;
  metrics_->evaluation(progress_.step, *loss, held_out_->sequences * config_.batch.sequence_length, held_out_->bytes);
  if (validation_is_finite_ = std::isfinite(*loss); validation_is_finite_) return;
  progress_.sanity.trouble_in_validation();
  log_warning(
      "step {}: the validation loss is not finite; checkpoints from before it are kept until checkpoint.settle = {} "
      "sane steps have followed a newer one",
      progress_.step, config_.checkpoint.settle);
}

void Run::check_validation() const {
  if (validation_is_finite_) return;
  throw JobError(
      __FILE__, __LINE__,
      fmt::format("all steps are made, but the last validation loss, after step {}, is not finite: the "
                  "model is of no use on data.validation = {}. The checkpoint is kept, for `megalith evaluate` with "
                  "precision.compute=fp32, which has the widest range; else train again with a lower "
                  "optimizer.learning_rate",
                  progress_.step, config_.data.validation));
}

// Until a step updates again, checkpoints from before the last update are kept.
void Run::save() {
  saves_->finish();
  together(session_, [&] {
    folder_->restore();
    metrics_->sync();
  });
  save_due_ = false;
  saves_->save(progress_.skipped_in_a_row > 0, stop_ || progress_.step == config_.train.steps);
}

bool Run::due(int64_t every) const {
  return progress_.step == config_.train.steps || (every > 0 && progress_.step % every == 0);
}

// A signal leaves time for no evaluation but one that the run that goes on would lack.
bool Run::evaluates() const {
  if (!held_out_) return false;
  if (ending_->agreed()) return due(config_.train.evaluate_every) && ending_->time_to_evaluate();
  return stop_ || due(config_.train.evaluate_every);
}

bool Run::saves() const {
  if (ending_->agreed()) return saves_->newest() < progress_.step && ending_->time_to_save();
  return stop_ || save_due_ || due(config_.checkpoint.every);
}

}  // namespace megalith
