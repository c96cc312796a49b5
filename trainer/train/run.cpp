#include "trainer/train/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "data/samples/sources.h"
#include "kernels/system/counted.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

using policy::Act;

int Run::train() {
  training_began_ = std::chrono::steady_clock::now();
  saves_.begin();
  metrics_->start_clock(profiler_->start(state_.progress.step));
  preemption_.begin(state_.progress.step);
  policy::Events events;
  std::exception_ptr failure;
  for (;;) {
    const policy::Tasks tasks = policy::next(rules_, state_, std::exchange(events, {}));
    try {
      for (const policy::Task& task : tasks)
        for (const policy::Event& event : obey(task)) events.push_back(event);
    } catch (const JobError& e) {  // on all ranks
      if (failure) log_warning("{}", e.what());
      if (!failure) failure = std::current_exception();
      events = {policy::Failed{}};
      continue;
    }
    const Act last = tasks.back().act;
    if (last == Act::rethrow) std::rethrow_exception(failure);
    if (policy::ends_well(last)) return end(last);
  }
}

policy::Events Run::obey(const policy::Task& task) {
  policy::Events events;
  const auto add = [&](std::optional<policy::Event> event) {
    if (event) events.push_back(*event);
  };
  const auto evaluating = [&](const std::function<void()>& work) { between(Account::evaluation, work); };
  const auto saving = [&](const std::function<void()>& work) { between(Account::checkpoint, work); };
  const Progress& progress = state_.progress;
  switch (task.act) {
    case Act::train: add(steps_.launch(progress, [this] { return flags(); })); break;
    case Act::report: add(report()); break;
    case Act::log_overflow: steps_.log_overflow(progress); break;
    case Act::log_nothing: steps_.log_nothing(progress); break;
    case Act::log_bad_step: steps_.log_bad_step(progress); break;
    case Act::keep_bad_step: steps_.keep_bad_step(progress, state_.newest_checkpoint, false); break;
    case Act::check_preemption: add(check_preemption()); break;
    case Act::evaluate: evaluating([&] { add(evaluate()); }); break;
    case Act::warn_of_validation: evaluating([&] { warn_of_validation(); }); break;
    case Act::sample: between(Account::sampling, [&] { sample(); }); break;
    case Act::prepare_save: saving([&] { prepare_save(); }); break;
    case Act::save: saving([&] { add(saves_.save(progress, task.prune)); }); break;
    case Act::begin_save: saving([&] { add(saves_.begin_save(progress, task.prune)); }); break;
    case Act::advance_save: saving([&] { add(saves_.advance()); }); break;
    case Act::finish_save: saving([&] { add(saves_.finish()); }); break;
    case Act::warn_save_failed: saving([&] { saves_.warn_failed(); }); break;
    case Act::wait_to_retry: saving([&] { saves_.wait_to_retry(task.seconds); }); break;
    case Act::drain: steps_.drain(); break;
    case Act::save_last_update: add(saves_.save(state_.last_update, task.prune)); break;
    case Act::warn_last_update_unsaved: saves_.warn_last_update_unsaved(); break;
    case Act::keep_final_bad_step: steps_.keep_bad_step(progress, state_.newest_checkpoint, true); break;
    case Act::close_reports:
      metrics_->log_last_step();
      metrics_->time_after(progress.step, profiler_->finish());
      break;
    case Act::fail_bad_steps: fail_bad_steps();
    case Act::fail_save_patience: saves_.fail_patience();
    case Act::fail_state_not_finite: saves_.fail_not_finite(progress.stability);
    case Act::fail_validation_not_finite: fail_validation();
    case Act::end_done:
    case Act::end_out_of_time:
    case Act::end_stopped_early:
    case Act::end_nothing_to_do:
    case Act::end_preempted:
    case Act::end_preempted_lost:
    case Act::rethrow: break;  // train() handles these
  }
  return events;
}

ControlFlags Run::flags() const {
  const policy::LocalFacts facts{.first_rank = session_.rank() == 0,
                                 .signal = preemption_.asked(),
                                 .minutes_trained = minutes_since(training_began_),
                                 .minutes_since_save = saves_.minutes_since_save()};
  return {.stop = policy::asks_to_stop(rules_, facts),
          .save = policy::asks_to_save(rules_, state_, facts),
          .save_phases = checkpointer_.phases()};
}

namespace {
policy::StepOutcome outcome_of(Decision decision) {
  switch (decision) {
    case Decision::update: return policy::StepOutcome::updated;
    case Decision::overflow: return policy::StepOutcome::overflow;
    case Decision::nothing: return policy::StepOutcome::nothing;
    default: return policy::StepOutcome::bad;
  }
}
}  // namespace

policy::Event Run::report() {
  const StepScalars& scalars = steps_.report();
  preemption_.trained(steps_.last_step());
  return policy::StepEnded{.outcome = outcome_of(scalars.decision),
                           .loss = scalars.loss,
                           .stop = scalars.ranks.stop > 0,
                           .save = scalars.ranks.save > 0,
                           .save_phase_done = checkpointer_.all_ended(scalars.ranks.save_phases)};
}

std::optional<policy::GracePeriod> Run::grace_period() const {
  if (!preemption_.agreed()) return {};
  return policy::GracePeriod{.time_to_evaluate = preemption_.time_to_evaluate(),
                             .time_to_save = preemption_.time_to_save()};
}

policy::Event Run::check_preemption() {
  preemption_.agree(checkpointer_.bytes(), config_.train.evaluate_batches * std::ssize(inputs_.validation));
  return policy::PreemptionChecked{grace_period()};
}

std::optional<std::vector<EvaluatedSet>> Run::evaluate_sets() {
  const int64_t batch = config_.batch.global_batch_size;
  const bool masked = config_.data.masked;
  int64_t batches = 0, made = 0;
  for (const ValidationSet& set : inputs_.validation) batches += (set.sequences + batch - 1) / batch;
  std::vector<EvaluatedSet> evaluated;
  for (const ValidationSet& set : inputs_.validation) {
    const auto weight_of = [&](int64_t first, int64_t n) { return masked ? set.loader.counted(first, n) : n; };
    double sum = 0;
    for (int64_t first = 0; first < set.sequences; first += batch) {
      if (made > 0 && !preemption_.continues_evaluating(checkpointer_.bytes(), made, batches)) return {};
      made++;
      const int64_t n = std::min(batch, set.sequences - first), weight = weight_of(first, n);
      const Feed feed = feed_from(set.loader, first, config_.model.vocab);
      if (weight > 0) sum += static_cast<double>(weight) * work_.trainer->evaluate(n, feed);
    }
    const double loss = sum / static_cast<double>(weight_of(0, set.sequences));
    evaluated.push_back({.name = set.name, .loss = loss, .tokens = set.targets(), .bytes = set.bytes});
  }
  return evaluated;
}

policy::Event Run::evaluate() {
  std::optional<std::vector<EvaluatedSet>> sets;
  preemption_.evaluate([&] {
    sets = evaluate_sets();
    if (sets) metrics_->evaluation(state_.progress.step, *sets);
  });
  policy::Evaluated event{.complete = sets.has_value(), .preemption = grace_period()};
  if (!sets) return event;
  event.loss = sets->front().loss;
  for (const EvaluatedSet& set : *sets)
    if (!std::isfinite(set.loss)) event.loss = set.loss;
  return event;
}

void Run::warn_of_validation() const {
  log_warning(
      "step {}: the validation loss is not finite; older checkpoints are kept until checkpoint.settle = {} stable "
      "steps follow a newer one",
      state_.progress.step, config_.checkpoint.settle);
}

void Run::sample() { metrics_->samples(state_.progress.step, samples_.write(*work_.trainer, state_.progress.step)); }

void Run::prepare_save() {
  together(session_, [&] {
    folder_->restore();
    metrics_->sync();
  });
}

void Run::fail_bad_steps() {
  const RestartPoint back = choose_restart(config_.checkpoint, session_, state_.progress.stability, last_weights());
  const int64_t last = steps_.last_step(), first = last - state_.progress.skipped_in_a_row + 1;
  const std::string steps =
      first == last ? fmt::format("step {} was", first) : fmt::format("steps {} to {} were", first, last);
  const StepScalars& scalars = steps_.last_scalars();
  throw JobError(__FILE__, __LINE__,
                 fmt::format("{} skipped, and train.max_bad_steps = {}; in the last, {}; {}. {}", steps,
                             config_.train.max_bad_steps, why_skipped(config_, scalars),
                             restart_in_words(config_, back), remedy_of(config_, scalars.decision, last)));
}

// Evaluates the batch of the last update. If its loss is still normal, the weights are not to blame.
LastWeights Run::last_weights() {
  const int64_t batch = config_.batch.global_batch_size, first = state_.last_update.sequences - batch;
  if (first < 0) return {};
  const double loss = work_.trainer->evaluate(batch, feed_from(inputs_.data, first, config_.model.vocab));
  return {.since = state_.last_update.step, .stable = state_.progress.stability.is_normal(loss)};
}

void Run::fail_validation() const {
  throw JobError(
      __FILE__, __LINE__,
      fmt::format(
          "all steps are complete, but the last validation loss, after step {}, is not finite: the model is useless on "
          "the data of {}. The checkpoint is kept, for `megalith evaluate` with precision.compute=fp32, which "
          "has the widest range; otherwise train again with a lower optimizer.learning_rate",
          state_.progress.step, fmt::join(names_of_sources("data.validation", config_.data.validation), " and ")));
}

int Run::end(Act how) const {
  if (how == Act::end_preempted || how == Act::end_preempted_lost)
    return preemption_.log_end(how == Act::end_preempted);
  const Progress& progress = state_.progress;
  std::string text =
      fmt::format("done: {}, {}", counted(progress.step, "step"), counted(progress.sequences, "sequence"));
  if (progress.skipped > 0) text += fmt::format("; skipped: {}", progress.skipped);
  if (how == Act::end_out_of_time)
    text += fmt::format("; stopped after train.minutes = {:g}, before step {}; run the same command to continue",
                        config_.train.minutes, config_.train.steps);
  if (how == Act::end_stopped_early)
    text += fmt::format(
        "; stopped early, before step {}: the last {} did not improve on a validation loss of {:.4f}. To continue, "
        "raise train.early_stopping_patience",
        config_.train.steps, counted(progress.validation.since_lowest, "evaluation"),
        progress.validation.lowest.value_or(0));
  if (how == Act::end_nothing_to_do)
    text +=
        "; nothing to do: all steps were already complete. Raise train.steps to continue, or set another run.output";
  log_info("{}", text);
  return 0;
}

}  // namespace megalith
