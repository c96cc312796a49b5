#include "trainer/train/policy.h"

#include <algorithm>
#include <cmath>

namespace megalith::policy {

namespace {

// A failed save is tried again after this share of checkpoint.patience; at the end of a run after at most this many
// seconds.
constexpr double retry_share = 0.1, longest_wait = 10;

void push(Tasks& todo, Act act) { todo.push_back({.act = act}); }

bool is_last(const Rules& r, const State& s) { return s.progress.step == r.steps; }
bool ends_here(const Rules& r, const State& s) { return s.stop || is_last(r, s); }

bool due(const Rules& r, const State& s, int64_t every) {
  return is_last(r, s) || (every > 0 && s.progress.step % every == 0);
}

// After a signal only an evaluation that the resumed run would not repeat is made.
bool evaluates(const Rules& r, const State& s) {
  if (!r.validates || s.evaluated_at == s.progress.step) return false;
  if (s.preemption) return due(r, s, r.evaluate_every) && s.preemption->time_to_evaluate;
  return s.stop || due(r, s, r.evaluate_every);
}

// After a signal, which leaves little time, no texts are written.
bool samples(const Rules& r, const State& s) {
  if (r.sample_every == 0 || s.sampled_at == s.progress.step || s.preemption) return false;
  return s.stop || due(r, s, r.sample_every);
}

bool saves(const Rules& r, const State& s) {
  if (s.save_tried_at == s.progress.step) return false;
  if (s.preemption) return s.newest_checkpoint < s.progress.step && s.preemption->time_to_save;
  return s.stop || s.save_due || due(r, s, r.save_every);
}

bool out_of_patience(const Rules& r, const State& s) {
  return r.early_stopping_patience > 0 && s.progress.validation.since_lowest >= r.early_stopping_patience;
}

struct See {
  const Rules& r;
  State& s;
  Tasks& todo;

  void operator()(const StepLaunched&) const {
    s.progress.step++;
    s.progress.sequences += r.batch;
    s.in_flight++;
  }

  void operator()(const StepEnded& e) const {
    const int64_t later = --s.in_flight, step = s.progress.step - later;
    s.stop = s.stop || e.stop;
    s.save_due = s.save_due || e.save;
    s.save_phase_done = e.save_phase_done;
    const bool bad = e.outcome == StepOutcome::bad;
    if (e.outcome != StepOutcome::nothing) s.progress.stability.record(step, bad, e.loss);
    if (e.outcome == StepOutcome::updated) {
      s.progress.skipped_in_a_row = 0;
      s.last_update = s.progress;
      s.last_update.step = step;
      s.last_update.sequences -= later * r.batch;
      return;
    }
    s.progress.skipped++;
    if (e.outcome == StepOutcome::nothing) return push(todo, Act::log_nothing);
    if (e.outcome == StepOutcome::overflow) return push(todo, Act::log_overflow);  // the loss scale is lower now
    s.progress.skipped_in_a_row++;
    push(todo, Act::log_bad_step);
    s.gives_up = s.progress.skipped_in_a_row >= r.max_bad_steps;
    if (!s.gives_up) push(todo, Act::keep_bad_step);
  }

  void operator()(const PreemptionChecked& e) const { s.preemption = e.preemption; }

  void operator()(const Evaluated& e) const {
    if (e.preemption) {
      s.stop = s.preemption_checked = true;
      s.preemption = e.preemption;
    }
    s.lacks_evaluation = !e.complete;
    if (!e.complete) return;
    const bool improved = s.progress.validation.record(s.progress.step, e.loss);
    s.save_due = s.save_due || (r.keep_best && improved);
    if (out_of_patience(r, s)) s.stop = s.stopped_early = true;
    s.validation_is_finite = std::isfinite(e.loss);
    if (s.validation_is_finite) return;
    s.progress.stability.anomaly_in_validation();
    push(todo, Act::warn_of_validation);
  }

  void operator()(const SaveBegun&) const { s.save_in_flight = true; }

  void operator()(const SaveEnded& e) const {
    s.save_in_flight = s.save_phase_done = s.save_waited_for = s.save_failed = false;
    if (e.finite)
      s.newest_checkpoint = e.step;
    else if (!s.last_update_save_tried)  // otherwise the run fails anyway
      push(todo, Act::fail_state_not_finite);
  }

  // After the last step a save is tried again at once.
  void operator()(const SaveFailed& e) const {
    s.retry_save = s.save_waited_for && ends_here(r, s);
    s.save_in_flight = s.save_phase_done = s.save_waited_for = false;
    s.save_failed = true;
    if (s.last_update_save_tried) return push(todo, Act::warn_last_update_unsaved);
    const bool waits = e.minutes < r.patience && !(e.hopeless && s.retry_save);
    push(todo, waits ? Act::warn_save_failed : Act::fail_save_patience);
  }

  void operator()(const Failed&) const { s.failed = true; }
};

// Checkpoints from before the last update are kept until a step updates again.
void save(const Rules& r, State& s, Tasks& todo) {
  const bool asynchronous = r.asynchronous_saves && !ends_here(r, s);
  todo.push_back({.act = asynchronous ? Act::begin_save : Act::save, .prune = s.progress.skipped_in_a_row == 0});
  s.save_waited_for = !asynchronous;
}

void train(const Rules& r, const State& s, Tasks& todo) {
  push(todo, Act::train);
  if (s.in_flight + 1 > r.steps_ahead) push(todo, Act::report);
}

// Steps launched since are skipped as well (DecideUpdate), so the weights are those of the last update.
void give_up(State& s, Tasks& todo) {
  if (!s.drained) push(todo, Act::drain);
  s.drained = true;
  if (s.save_in_flight) return push(todo, Act::finish_save);
  if (!s.last_update_save_tried && s.newest_checkpoint < s.last_update.step) {  // it may have damaged the weights
    s.last_update_save_tried = true;
    todo.push_back({.act = Act::save_last_update, .prune = false});
    return;
  }
  push(todo, Act::keep_final_bad_step);
  push(todo, Act::fail_bad_steps);
}

// A checkpoint is of a step that is reported completely, with its evaluation and its texts.
void evaluate_and_save(const Rules& r, State& s, Tasks& todo) {
  if (s.in_flight > 0) return push(todo, Act::report);
  if (s.stop && !is_last(r, s) && !s.preemption_checked) {
    s.preemption_checked = true;
    return push(todo, Act::check_preemption);
  }
  if (evaluates(r, s)) {
    s.evaluated_at = s.progress.step;
    return push(todo, Act::evaluate);
  }
  if (samples(r, s)) {
    s.sampled_at = s.progress.step;
    return push(todo, Act::sample);
  }
  if (s.save_in_flight) return push(todo, Act::finish_save);
  s.save_tried_at = s.progress.step;
  s.save_due = false;
  push(todo, Act::prepare_save);
  save(r, s, todo);
}

Act how_it_ends(const Rules& r, const State& s) {
  const bool saved = s.newest_checkpoint == s.progress.step;
  if (s.preemption && !(saved && is_last(r, s) && !s.lacks_evaluation))
    return saved ? Act::end_preempted : Act::end_preempted_lost;
  if (!s.validation_is_finite) return Act::fail_validation_not_finite;
  if (s.progress.step < r.steps) return s.stopped_early ? Act::end_stopped_early : Act::end_out_of_time;
  return s.nothing_to_do ? Act::end_nothing_to_do : Act::end_done;
}

void decide(const Rules& r, State& s, Tasks& todo) {
  if (s.failed) return push(todo, s.save_in_flight ? Act::finish_save : Act::rethrow);
  if (s.gives_up) return give_up(s, todo);
  if (s.retry_save) {
    s.retry_save = false;
    todo.push_back({.act = Act::wait_to_retry, .seconds = std::min(60 * retry_share * r.patience, longest_wait)});
    return save(r, s, todo);
  }
  if (s.in_flight > r.steps_ahead) return push(todo, Act::report);
  if (s.save_in_flight && s.save_phase_done && s.in_flight == r.steps_ahead) {
    s.save_phase_done = false;
    return push(todo, Act::advance_save);
  }
  if (evaluates(r, s) || samples(r, s) || saves(r, s)) return evaluate_and_save(r, s, todo);
  if (s.progress.step < r.steps && !s.stop) return train(r, s, todo);
  if (s.save_in_flight) return push(todo, Act::finish_save);
  push(todo, Act::close_reports);
  push(todo, how_it_ends(r, s));
}

}  // namespace

State start(const Rules& rules, const Progress& progress, int64_t newest_checkpoint) {
  State state{.progress = progress,
              .last_update = progress,
              .newest_checkpoint = newest_checkpoint,
              .nothing_to_do = progress.step >= rules.steps,
              .evaluated_at = progress.step,
              .sampled_at = progress.step,
              .save_tried_at = progress.step};
  state.stop = state.stopped_early = out_of_patience(rules, state);
  return state;
}

Tasks next(const Rules& rules, State& state, const Events& events) {
  Tasks todo;
  for (const Event& event : events) std::visit(See{rules, state, todo}, event);
  if (todo.empty() || !fails(todo.back().act)) decide(rules, state, todo);
  return todo;
}

bool asks_to_stop(const Rules& rules, const LocalFacts& facts) {
  return facts.signal || (facts.first_rank && rules.train_minutes > 0 && facts.minutes_trained >= rules.train_minutes);
}

bool asks_to_save(const Rules& rules, const State& state, const LocalFacts& facts) {
  const bool to_retry = state.save_failed && !state.save_in_flight && rules.patience > 0;
  const auto passed = [&](double minutes, bool counts) { return counts && facts.minutes_since_save >= minutes; };
  return facts.first_rank &&
         (passed(rules.save_minutes, rules.save_minutes > 0) || passed(retry_share * rules.patience, to_retry));
}

}  // namespace megalith::policy
