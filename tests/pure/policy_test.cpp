// The policy of a run as a table: what it knows, what has come, what it does.
#include "trainer/train/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/pure/policy_rules.h"

namespace megalith::policy {
namespace {

const char* name_of(Act act) {
  switch (act) {
    case Act::train: return "train";
    case Act::report: return "report";
    case Act::log_overflow: return "log_overflow";
    case Act::log_nothing: return "log_nothing";
    case Act::log_bad_step: return "log_bad_step";
    case Act::keep_bad_step: return "keep_bad_step";
    case Act::check_preemption: return "check_preemption";
    case Act::evaluate: return "evaluate";
    case Act::warn_of_validation: return "warn_of_validation";
    case Act::sample: return "sample";
    case Act::prepare_save: return "prepare_save";
    case Act::save: return "save";
    case Act::begin_save: return "begin_save";
    case Act::advance_save: return "advance_save";
    case Act::finish_save: return "finish_save";
    case Act::warn_save_failed: return "warn_save_failed";
    case Act::wait_to_retry: return "wait_to_retry";
    case Act::drain: return "drain";
    case Act::save_last_update: return "save_last_update";
    case Act::warn_last_update_unsaved: return "warn_last_update_unsaved";
    case Act::keep_final_bad_step: return "keep_final_bad_step";
    case Act::close_reports: return "close_reports";
    case Act::end_done: return "end_done";
    case Act::end_out_of_time: return "end_out_of_time";
    case Act::end_stopped_early: return "end_stopped_early";
    case Act::end_nothing_to_do: return "end_nothing_to_do";
    case Act::end_preempted: return "end_preempted";
    case Act::end_preempted_lost: return "end_preempted_lost";
    case Act::fail_bad_steps: return "fail_bad_steps";
    case Act::fail_save_patience: return "fail_save_patience";
    case Act::fail_state_not_finite: return "fail_state_not_finite";
    case Act::fail_validation_not_finite: return "fail_validation_not_finite";
    case Act::rethrow: return "rethrow";
  }
  return "?";
}

bool may_prune(Act act) { return act == Act::save || act == Act::begin_save || act == Act::save_last_update; }

std::string words_of(const Tasks& actions) {
  std::string text;
  for (const Task& a : actions) {
    text += (text.empty() ? "" : " ") + std::string(name_of(a.act));
    if (may_prune(a.act) && !a.prune) text += "(keep all)";
    if (a.act == Act::wait_to_retry) text += "(" + std::to_string(std::lround(a.seconds)) + " s)";
  }
  return text;
}

// The run has reported this step; before it, it was evaluated, wrote texts and was saved at step 4, if it came that
// far.
State after(int64_t step) {
  State s = start(ten_steps(), {.step = step, .sequences = 2 * step}, step > 4 ? 4 : 0);
  s.evaluated_at = s.sampled_at = s.save_tried_at = step > 4 ? 4 : 0;
  s.nothing_to_do = false;
  return s;
}

// The same holds while its last step is in flight.
State launched(int64_t step) {
  State s = after(step);
  s.in_flight = 1;
  s.last_update = {.step = step - 1, .sequences = 2 * (step - 1)};
  return s;
}

template <class... Changes>
State with(State s, const Changes&... changes) {
  (changes(s), ...);
  return s;
}
void saving(State& s) { s.save_in_flight = true; }
void stopping(State& s) { s.stop = s.preemption_checked = true; }
void evaluated(State& s) { s.evaluated_at = s.progress.step; }
void saved(State& s) { s.newest_checkpoint = s.save_tried_at = s.progress.step; }
void waits_for_save(State& s) { s.save_waited_for = true, s.save_tried_at = s.progress.step; }
void one_bad(State& s) { s.progress.skipped = s.progress.skipped_in_a_row = 1; }
void validation_not_finite(State& s) { s.validation_is_finite = false; }
void on_time(State& s) { s.stop = s.preemption_checked = true, s.preemption = GracePeriod{true, true}; }
void too_late(State& s) { s.stop = s.preemption_checked = true, s.preemption = GracePeriod{}; }

struct Row {
  std::string name;
  State state;
  Events events;
  std::string actions;
  std::function<void(Rules&)> rules = [](Rules&) {};
};

void synchronous(Rules& r) { r.asynchronous_saves = false; }
void gpu(Rules& r) { r.steps_ahead = 1; }
void without_validation(Rules& r) { r.validates = false; }

constexpr StepOutcome bad = StepOutcome::bad;
const GracePeriod time_for_all{true, true}, time_to_save{false, true}, no_time{false, false};

std::vector<Row> steps_and_their_ends() {
  return {
      {"a run begins", start(ten_steps(), {}, 0), {}, "train report"},
      {"a run is resumed where one was due", start(ten_steps(), {.step = 4}, 4), {}, "train report"},
      {"resume on a finished run", start(ten_steps(), {.step = 10}, 10), {}, "close_reports end_nothing_to_do"},
      {"resume on a run of more steps", start(ten_steps(), {.step = 12}, 12), {}, "close_reports end_nothing_to_do"},
      {"a step", launched(3), {StepEnded{}}, "train report"},
      {"a GPU is given a step ahead", start(ten_steps(), {}, 0), {}, "train", gpu},
      {"a GPU is given the next before one is read", launched(3), {}, "train report", gpu},
      {"a step that overflows",
       launched(3),
       {StepEnded{.outcome = StepOutcome::overflow}},
       "log_overflow train report"},
      {"a step of which no token counts",
       launched(3),
       {StepEnded{.outcome = StepOutcome::nothing}},
       "log_nothing train report"},
      {"no bad one among them ends the run",
       with(launched(7), one_bad),
       {StepEnded{.outcome = StepOutcome::nothing}},
       "log_nothing train report"},
      {"a step that is bad", launched(3), {StepEnded{.outcome = bad}}, "log_bad_step keep_bad_step train report"},
      {"too many bad steps, of which the last update is saved",
       with(launched(6), one_bad, [](State& s) { s.last_update = {.step = 4, .sequences = 8}; }),
       {StepEnded{.outcome = bad}},
       "log_bad_step drain keep_final_bad_step fail_bad_steps"},
      {"too many bad steps, and updates that are not saved",
       with(launched(7), one_bad),
       {StepEnded{.outcome = bad}},
       "log_bad_step drain save_last_update(keep all)"},
      {"too many bad steps while a save is in flight",
       with(launched(7), one_bad, saving),
       {StepEnded{.outcome = bad}},
       "log_bad_step drain finish_save"},
      {"the last step", launched(10), {StepEnded{}}, "evaluate"},
      {"the last step, evaluated", with(after(10), evaluated), {}, "prepare_save save"},
      {"the last step while a save is in flight", with(after(10), evaluated, saving), {}, "finish_save"},
      {"all is done", with(after(10), evaluated, waits_for_save), {SaveEnded{.step = 10}}, "close_reports end_done"},
      {"a stop by train.minutes", launched(6), {StepEnded{.stop = true}}, "check_preemption"},
      {"a stop by train.minutes, agreed", with(after(6), stopping), {PreemptionChecked{}}, "evaluate"},
      {"a stop by train.minutes, evaluated", with(after(6), stopping, evaluated), {Evaluated{}}, "prepare_save save"},
      {"a stop by train.minutes, saved",
       with(after(6), stopping, evaluated, waits_for_save),
       {SaveEnded{.step = 6}},
       "close_reports end_out_of_time"},
      {"a stop with the last step is none", launched(10), {StepEnded{.stop = true}}, "evaluate"},
      {"an action that could not be done", launched(3), {Failed{}}, "rethrow"},
      {"an action that could not be done while a save is in flight",
       with(launched(3), saving),
       {Failed{}},
       "finish_save"},
  };
}

std::vector<Row> evaluations() {
  return {
      {"validation and save are due at the same step", launched(4), {StepEnded{}}, "evaluate"},
      {"on a GPU once all is reported", with(launched(4)), {}, "report", gpu},
      {"then it is saved", with(after(4), evaluated), {Evaluated{}}, "prepare_save begin_save"},
      {"no validation", launched(4), {StepEnded{}}, "prepare_save begin_save", without_validation},
      {"a validation that is not finite",
       with(after(4), evaluated),
       {Evaluated{.loss = NAN}},
       "warn_of_validation prepare_save begin_save"},
      {"the last validation is not finite",
       with(after(10), evaluated, waits_for_save, validation_not_finite),
       {SaveEnded{.step = 10}},
       "close_reports fail_validation_not_finite"},
      {"a signal amid a validation",
       with(after(8), evaluated),
       {Evaluated{.complete = false, .preemption = time_to_save}},
       "prepare_save save"},
      {"a signal amid the last validation",
       with(after(10), evaluated, saved),
       {Evaluated{.complete = false, .preemption = time_to_save}},
       "close_reports end_preempted"},
  };
}

void lowest_was_2(State& s) { s.progress.validation = {.step = 2, .loss = 2, .lowest = 2}; }
void one_without_improvement(State& s) { s.progress.validation.since_lowest = 1; }
void never_saves(Rules& r) { r.save_every = 0; }
void keeps_best(Rules& r) { never_saves(r), r.keep_best = true; }
void patience_of_two(Rules& r) { never_saves(r), r.early_stopping_patience = 2; }

std::vector<Row> best_weights() {
  return {
      {"the first validation is the best so far",
       with(after(4), evaluated),
       {Evaluated{.loss = 3}},
       "prepare_save begin_save",
       keeps_best},
      {"a lower loss is saved",
       with(after(4), evaluated, lowest_was_2),
       {Evaluated{.loss = 1.9}},
       "prepare_save begin_save",
       keeps_best},
      {"a lower loss is not saved unless the best is kept",
       with(after(4), evaluated, lowest_was_2),
       {Evaluated{.loss = 1.9}},
       "train report",
       never_saves},
      {"an equal loss is no improvement",
       with(after(4), evaluated, lowest_was_2),
       {Evaluated{.loss = 2}},
       "train report",
       keeps_best},
      {"a higher loss", with(after(4), evaluated, lowest_was_2), {Evaluated{.loss = 2.1}}, "train report", keeps_best},
      {"a loss that is not finite",
       with(after(4), evaluated, lowest_was_2),
       {Evaluated{.loss = NAN}},
       "warn_of_validation train report",
       keeps_best},
      {"an evaluation that a signal cut short",
       with(after(8), evaluated, lowest_was_2),
       {Evaluated{.complete = false, .preemption = no_time}},
       "close_reports end_preempted_lost",
       keeps_best},
      {"patience is not over",
       with(after(4), evaluated, lowest_was_2),
       {Evaluated{.loss = 2.1}},
       "train report",
       patience_of_two},
      {"patience is over, and the state is saved",
       with(after(8), evaluated, lowest_was_2, one_without_improvement),
       {Evaluated{.loss = 2}},
       "check_preemption",
       patience_of_two},
      {"then the run ends",
       with(after(8), stopping, evaluated, waits_for_save, [](State& s) { s.stopped_early = true; }),
       {SaveEnded{.step = 8}},
       "close_reports end_stopped_early",
       patience_of_two},
      {"an improvement begins patience again",
       with(after(8), evaluated, lowest_was_2, one_without_improvement),
       {Evaluated{.loss = 1.9}},
       "train report",
       patience_of_two},
  };
}

TEST(Policy, ARunThatWasStoppedEarlyStaysSoUntilItsPatienceIsRaised) {
  Progress progress{.step = 8, .sequences = 16};
  progress.validation = {.step = 8, .loss = 2.1, .lowest = 2, .since_lowest = 2};
  Rules rules = ten_steps();
  patience_of_two(rules);
  State stopped = start(rules, progress, 8);
  EXPECT_EQ(words_of(next(rules, stopped, {})), "close_reports end_stopped_early");
  rules.early_stopping_patience = 3;
  State continued = start(rules, progress, 8);
  EXPECT_EQ(words_of(next(rules, continued, {})), "train report");
}

std::vector<Row> signals() {
  return {
      {"a signal", launched(6), {StepEnded{.stop = true}}, "check_preemption"},
      {"a signal while a save is in flight", with(launched(6), saving), {StepEnded{.stop = true}}, "check_preemption"},
      {"it leaves time to save", with(after(6), stopping), {PreemptionChecked{time_to_save}}, "prepare_save save"},
      {"it leaves time to save once the save in flight is over",
       with(after(6), stopping, saving),
       {PreemptionChecked{time_to_save}},
       "finish_save"},
      {"it leaves time for all, where no validation is due",
       with(after(6), stopping),
       {PreemptionChecked{time_for_all}},
       "prepare_save save"},
      {"it leaves time for all, where one is due",
       with(after(8), stopping),
       {PreemptionChecked{time_for_all}},
       "evaluate"},
      {"it leaves no time", with(after(8), stopping), {PreemptionChecked{no_time}}, "close_reports end_preempted_lost"},
      {"it leaves no time while a save is in flight",
       with(after(6), stopping, saving),
       {PreemptionChecked{no_time}},
       "finish_save"},
      {"it left no time, and the save in flight has ended",
       with(after(6), too_late, saving),
       {SaveEnded{.step = 4}},
       "close_reports end_preempted_lost"},
      {"it is saved", with(after(6), on_time, waits_for_save), {SaveEnded{.step = 6}}, "close_reports end_preempted"},
  };
}

std::vector<Row> saves() {
  return {
      {"a save is due by time", with(launched(6)), {StepEnded{.save = true}}, "prepare_save begin_save"},
      {"a save before the next step", with(launched(4), evaluated), {StepEnded{}}, "prepare_save save", synchronous},
      {"nothing is pruned until a step updates again",
       with(after(8), one_bad, evaluated),
       {},
       "prepare_save begin_save(keep all)"},
      {"a save has begun",
       with(after(4), evaluated, [](State& s) { s.save_tried_at = 4; }),
       {SaveBegun{}},
       "train report"},
      {"its phase is not over", with(launched(6), saving), {StepEnded{}}, "train report"},
      {"its phase is over", with(launched(6), saving), {StepEnded{.save_phase_done = true}}, "advance_save"},
      {"on a GPU once the next step is launched",
       with(after(8), saving, [](State& s) { s.save_phase_done = true; }),
       {},
       "evaluate",
       gpu},
      {"there is another", with(after(6), saving), {}, "train report"},
      {"it has ended", with(after(6), saving), {SaveEnded{.step = 4}}, "train report"},
      {"it has failed", with(after(6), saving), {SaveFailed{.minutes = 0.5}}, "warn_save_failed train report"},
      {"another is due while it is in flight", with(launched(6), saving), {StepEnded{.save = true}}, "finish_save"},
      {"that has failed, and the other is tried",
       with(after(6), saving, [](State& s) { s.save_due = true; }),
       {SaveFailed{.minutes = 0.5}},
       "warn_save_failed prepare_save begin_save"},
      {"a save before the next step has failed",
       with(after(8), evaluated, waits_for_save),
       {SaveFailed{.minutes = 0.5}},
       "warn_save_failed train report",
       synchronous},
      {"patience is over", with(after(8), evaluated, waits_for_save), {SaveFailed{.minutes = 1}}, "fail_save_patience"},
      {"the last save has failed and is tried again",
       with(after(10), evaluated, waits_for_save),
       {SaveFailed{.minutes = 0.5}},
       "warn_save_failed wait_to_retry(6 s) save"},
      {"the last save has failed at a limit of the process, which no waiting changes",
       with(after(10), evaluated, waits_for_save),
       {SaveFailed{.minutes = 0.5, .hopeless = true}},
       "fail_save_patience"},
      {"a save before the last has failed at such a limit: the steps continue",
       with(after(6), saving),
       {SaveFailed{.minutes = 0.5, .hopeless = true}},
       "warn_save_failed train report"},
      {"it is not waited for longer",
       with(after(10), evaluated, waits_for_save),
       {SaveFailed{.minutes = 0.5}},
       "warn_save_failed wait_to_retry(10 s) save",
       [](Rules& r) { r.patience = 240; }},
      {"a checkpoint that is not finite",
       with(after(6), saving),
       {SaveEnded{.step = 4, .finite = false}},
       "fail_state_not_finite"},
      {"nothing is in flight when it failed",
       with(after(6), saving, [](State& s) { s.failed = true; }),
       {SaveFailed{.minutes = 0.5}},
       "warn_save_failed rethrow"},
      {"the last update could not be saved",
       with(after(7), one_bad, [](State& s) { s.gives_up = s.drained = s.last_update_save_tried = true; }),
       {SaveFailed{.minutes = 5}},
       "warn_last_update_unsaved keep_final_bad_step fail_bad_steps"},
      {"the last update was saved, and is not finite",
       with(after(7), one_bad, [](State& s) { s.gives_up = s.drained = s.last_update_save_tried = true; }),
       {SaveEnded{.step = 6, .finite = false}},
       "keep_final_bad_step fail_bad_steps"},
  };
}

void sampled(State& s) { s.sampled_at = s.progress.step; }
void texts_every_2(Rules& r) { r.sample_every = 2; }

std::vector<Row> texts() {
  return {
      {"texts come behind a validation", launched(4), {StepEnded{}}, "evaluate", texts_every_2},
      {"and before a save", with(after(4), evaluated), {Evaluated{}}, "sample", texts_every_2},
      {"then it is saved", with(after(4), evaluated, sampled), {}, "prepare_save begin_save", texts_every_2},
      {"texts alone are due", launched(6), {StepEnded{}}, "sample", texts_every_2},
      {"then the run goes on", with(after(6), sampled), {}, "train report", texts_every_2},
      {"no texts are due", launched(5), {StepEnded{}}, "train report", texts_every_2},
      {"on a GPU once all is reported", launched(6), {}, "report", [](Rules& r) { texts_every_2(r), gpu(r); }},
      {"after the last step",
       with(after(10), evaluated),
       {Evaluated{}},
       "sample",
       [](Rules& r) { r.sample_every = 7; }},
      {"a resumed run has those of its checkpoint",
       start(ten_steps(), {.step = 4}, 4),
       {},
       "train report",
       texts_every_2},
      {"a stop by train.minutes", with(after(7), stopping, evaluated), {Evaluated{}}, "sample", texts_every_2},
      {"a signal",
       with(after(8), stopping, evaluated),
       {PreemptionChecked{time_for_all}},
       "prepare_save save",
       texts_every_2},
      {"a signal amid a validation",
       with(after(8), evaluated),
       {Evaluated{.complete = false, .preemption = time_to_save}},
       "prepare_save save",
       texts_every_2},
  };
}

TEST(Policy, DoesWhatTheTableSays) {
  for (const auto& table : {steps_and_their_ends(), evaluations(), best_weights(), texts(), signals(), saves()})
    for (const Row& row : table) {
      Rules rules = ten_steps();
      row.rules(rules);
      State state = row.state;
      EXPECT_EQ(words_of(next(rules, state, row.events)), row.actions) << row.name;
    }
}

// Else a warning of step 4 would speak of step 5.
TEST(Policy, ATaskFindsTheStateItWasDecidedBy) {
  State state = with(after(4), evaluated, [](State& s) { s.save_tried_at = 4; });
  EXPECT_EQ(words_of(next(ten_steps(), state, {Evaluated{.loss = NAN}})), "warn_of_validation train report");
  EXPECT_EQ(state.progress.step, 4);
  next(ten_steps(), state, {StepLaunched{}, StepEnded{}});
  EXPECT_EQ(state.progress.step, 5);
  EXPECT_EQ(state.last_update.sequences, 10);
}

TEST(Policy, WhatOneRankAsksFor) {
  const Rules rules = {.train_minutes = 5, .save_minutes = 2, .patience = 10};
  State fine, failed;
  failed.save_failed = true;
  EXPECT_TRUE(asks_to_stop(rules, {.signal = true}));
  EXPECT_TRUE(asks_to_stop(rules, {.first_rank = true, .minutes_trained = 5}));
  EXPECT_FALSE(asks_to_stop(rules, {.first_rank = true, .minutes_trained = 4.9}));
  EXPECT_FALSE(asks_to_stop(rules, {.minutes_trained = 9})) << "another rank's clock does not count";
  EXPECT_FALSE(asks_to_stop({}, {.first_rank = true, .minutes_trained = 9})) << "no end is set";
  EXPECT_TRUE(asks_to_save(rules, fine, {.first_rank = true, .minutes_since_save = 2}));
  EXPECT_FALSE(asks_to_save(rules, fine, {.first_rank = true, .minutes_since_save = 1.9}));
  EXPECT_TRUE(asks_to_save(rules, failed, {.first_rank = true, .minutes_since_save = 1})) << "a tenth of the patience";
  EXPECT_FALSE(asks_to_save(rules, failed, {.first_rank = true, .minutes_since_save = 0.9}));
  EXPECT_FALSE(asks_to_save(rules, failed, {.minutes_since_save = 9}));
  EXPECT_FALSE(asks_to_save({}, failed, {.first_rank = true, .minutes_since_save = 9})) << "without patience";
  failed.save_in_flight = true;
  EXPECT_FALSE(asks_to_save(rules, failed, {.first_rank = true, .minutes_since_save = 1.5}))
      << "it is being tried again";
  EXPECT_TRUE(asks_to_save(rules, failed, {.first_rank = true, .minutes_since_save = 2})) << "the next is due";
}

}  // namespace
}  // namespace megalith::policy
