// The policy of a run decides, as a pure function, when it trains, evaluates, saves, prunes, ends and gives up. run.cpp
// executes the tasks and returns their events, on which the policy bases its next decision. Every rank gets the same
// events and takes the same tasks. Only asks_to_stop() and asks_to_save() use facts of one rank, and their answers
// reach all ranks with the next step's sums.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "trainer/checkpointing/progress.h"

namespace megalith::policy {

// Settings that do not change in a run. 0 in `every` and `minutes` means never.
struct Rules {
  int64_t steps = 0;        // whole run
  int64_t batch = 0;        // sequences a step
  int64_t steps_ahead = 0;  // launched before one is reported: 1 on a GPU, so that it never waits
  int64_t evaluate_every = 0, save_every = 0, sample_every = 0;
  int64_t max_bad_steps = 0;  // maximum in a row
  bool validates = false;
  bool keep_best = false;               // saves after each evaluation that improves on all before
  int64_t early_stopping_patience = 0;  // evaluations without improvement that end the run; 0: off
  bool asynchronous_saves = false;
  double train_minutes = 0, save_minutes = 0;
  double patience = 0;  // minutes without a checkpoint after which a failed save ends the run
};

// The time that a signal leaves until the end of the run.
struct GracePeriod {
  bool time_to_evaluate = false;  // with a save
  bool time_to_save = false;
};

enum class Act {
  train,   // launch the next step -> StepLaunched
  report,  // wait for the oldest step in flight, read its scalars and log them -> StepEnded
  log_overflow,
  log_nothing,  // the step had no token that counts
  log_bad_step,
  keep_bad_step,     // bad_step_file.h
  check_preemption,  // agree whether a signal stops the run -> PreemptionChecked
  evaluate,          // -> Evaluated
  warn_of_validation,
  sample,            // write texts
  prepare_save,      // restore the run's folder, write its metrics to the disk
  save,              // synchronously -> SaveEnded or SaveFailed
  begin_save,        // asynchronously -> SaveBegun
  advance_save,      // begin the next phase (checkpointing/saving.h) -> SaveEnded, SaveFailed or nothing
  finish_save,       // wait for it -> SaveEnded or SaveFailed
  warn_save_failed,  // the policy tries again later
  wait_to_retry,     // sleep for `seconds`
  drain,             // wait for all launched steps, without reading their scalars
  save_last_update,  // save the state after the last update, without pruning -> SaveEnded or SaveFailed
  warn_last_update_unsaved,
  keep_final_bad_step,
  close_reports,  // log the last step and the breakdown of the time
  // The last task of a run is one of these, or rethrow.
  end_done,
  end_out_of_time,     // train.minutes
  end_stopped_early,   // train.early_stopping_patience
  end_nothing_to_do,   // all steps were made before this start
  end_preempted,       // a signal ended the run after a checkpoint of the last step
  end_preempted_lost,  // a signal ended it without
  // An error ends the run -> Failed
  fail_bad_steps,
  fail_save_patience,
  fail_state_not_finite,
  fail_validation_not_finite,
  rethrow,  // throw the first error again
};

struct Task {
  Act act{};
  bool prune = true;   // saves: delete old checkpoints
  double seconds = 0;  // wait_to_retry
  bool operator==(const Task&) const = default;
};
using Tasks = std::vector<Task>;

constexpr bool ends_well(Act act) { return act >= Act::end_done && act <= Act::end_preempted_lost; }
constexpr bool fails(Act act) { return act >= Act::fail_bad_steps && act <= Act::fail_validation_not_finite; }

// nothing: no token of the step counts, so there was no update to make.
enum class StepOutcome { updated, overflow, bad, nothing };

struct StepLaunched {};
// The oldest step in flight was reported.
struct StepEnded {
  StepOutcome outcome = StepOutcome::updated;
  double loss = 0;
  bool stop = false;             // a rank asks to stop
  bool save = false;             // a save is due by time
  bool save_phase_done = false;  // all ranks have completed the save's phase
};
struct PreemptionChecked {
  std::optional<GracePeriod> preemption{};  // nullopt: no signal has come
};
struct Evaluated {
  bool complete = true;  // no signal has cut it short
  double loss = 0;
  std::optional<GracePeriod> preemption{};
};
struct SaveBegun {};
struct SaveEnded {
  int64_t step = 0;
  bool finite = true;
};
struct SaveFailed {
  double minutes = 0;     // since the last checkpoint or the start, by the first rank's clock
  bool hopeless = false;  // waiting cannot make a save succeed: a limit of this process prevents it
};
struct Failed {};  // a task threw, and the tasks after it were not executed
using Event =
    std::variant<StepLaunched, StepEnded, PreemptionChecked, Evaluated, SaveBegun, SaveEnded, SaveFailed, Failed>;
using Events = std::vector<Event>;

struct State {
  Progress progress{};            // includes launched steps; skipped ones are corrected when they are reported
  Progress last_update{};         // after the last update, or as resumed
  int64_t in_flight = 0;          // steps launched and not reported
  int64_t newest_checkpoint = 0;  // step of the newest finite one; 0: none
  bool nothing_to_do = false;     // all steps were made before this start

  bool stop = false;      // all ranks know of a signal, the end of train.minutes or an early stop
  bool save_due = false;  // checkpoint.minutes have passed, or the weights are the best
  bool preemption_checked = false;
  std::optional<GracePeriod> preemption{};

  int64_t evaluated_at = 0, sampled_at = 0, save_tried_at = 0;  // steps, initially the first
  bool validation_is_finite = true;                             // last evaluation
  bool lacks_evaluation = false;                                // a signal cut the last evaluation short
  bool stopped_early = false;                                   // too many evaluations without improvement

  bool save_in_flight = false;   // asynchronous
  bool save_phase_done = false;  // on all ranks
  bool save_waited_for = false;  // synchronous
  bool save_failed = false;      // the last save
  bool retry_save = false;       // retries at once, since the run ends here

  bool gives_up = false;  // too many bad steps
  bool drained = false, last_update_save_tried = false;
  bool failed = false;
};

State start(const Rules& rules, const Progress& progress, int64_t newest_checkpoint);

// Returns the next tasks, in order, up to the first whose outcome matters. `events` are those of the previous tasks; at
// the first call there are none.
Tasks next(const Rules& rules, State& state, const Events& events);

// Facts that one rank knows when it launches a step. Only the first rank's clock counts.
struct LocalFacts {
  bool first_rank = false;
  bool signal = false;  // has arrived
  double minutes_trained = 0;
  double minutes_since_save = 0;  // successful or not
};
bool asks_to_stop(const Rules& rules, const LocalFacts& facts);
bool asks_to_save(const Rules& rules, const State& state, const LocalFacts& facts);

}  // namespace megalith::policy
