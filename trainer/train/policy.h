// The policy of a run: what it does next, as a pure function of what it knows. It decides when the run trains,
// evaluates, saves, prunes, ends and gives up; run.cpp obeys, and each action has as its outcome the events that the
// next decision is made by. Every rank gets the same events and so takes the same actions: only asks_to_stop() and
// asks_to_save() see what one rank alone knows, and their answers come back with a step that all ranks have made.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "trainer/checkpointing/progress.h"

namespace megalith::policy {

// Rules do not change in a run. 0 in `every` and `minutes`: never.
struct Rules {
  int64_t steps = 0;        // of the whole run
  int64_t batch = 0;        // sequences a step
  int64_t steps_ahead = 0;  // that are launched before one is reported; a GPU has one, so that it never waits for it
  int64_t evaluate_every = 0, save_every = 0;
  int64_t max_bad_steps = 0;  // in a row
  bool validates = false;
  bool asynchronous_saves = false;
  double train_minutes = 0, save_minutes = 0;
  double patience = 0;  // minutes without a checkpoint before a save that fails ends the run
};

// A signal ends the run, and the time that it leaves.
struct GracePeriod {
  bool time_to_evaluate = false;  // and to save
  bool time_to_save = false;
};

enum class Act {
  train,   // launch the next step -> StepLaunched
  report,  // wait for the oldest step in flight, read its scalars and log them -> StepEnded
  log_overflow,
  log_bad_step,
  keep_bad_step,     // in a file
  check_preemption,  // all ranks: whether a signal is why they stop -> PreemptionChecked
  evaluate,          // -> Evaluated
  warn_of_validation,
  prepare_save,      // what belongs to the run's folder is there, and its metrics are on the disk
  save,              // and wait for it -> SaveEnded or SaveFailed
  begin_save,        // asynchronously -> SaveBegun
  advance_save,      // to its next phase (checkpointing/saving.h) -> SaveEnded, SaveFailed or nothing
  finish_save,       // wait for it -> SaveEnded or SaveFailed
  warn_save_failed,  // the run goes on, and tries again
  wait_to_retry,     // for `seconds`
  drain,             // wait for all that is launched; its scalars are not read
  save_last_update,  // the state after the last step that updated; nothing is pruned -> SaveEnded or SaveFailed
  warn_last_update_unsaved,
  keep_final_bad_step,
  close_reports,  // every step has its line, and the log says where the time went
  // The last action of a run is one of these, or rethrow.
  end_done,
  end_out_of_time,     // train.minutes
  end_nothing_to_do,   // all steps were made before this start
  end_preempted,       // by a signal, with the last step in a checkpoint
  end_preempted_lost,  // without
  // An error ends the run -> Failed
  fail_bad_steps,
  fail_save_patience,
  fail_state_not_finite,
  fail_validation_not_finite,
  rethrow,  // the error of the first that Failed
};

struct Action {
  Act act{};
  bool prune = true;   // of a save: checkpoints that are not needed any more are deleted
  double seconds = 0;  // of wait_to_retry
  bool operator==(const Action&) const = default;
};
using Actions = std::vector<Action>;

constexpr bool ends_well(Act act) { return act >= Act::end_done && act <= Act::end_preempted_lost; }
constexpr bool fails(Act act) { return act >= Act::fail_bad_steps && act <= Act::fail_validation_not_finite; }

enum class StepOutcome { updated, overflow, bad };

struct StepLaunched {};
// The oldest step in flight was reported; what ranks asked for with it is known to all.
struct StepEnded {
  StepOutcome outcome = StepOutcome::updated;
  double loss = 0;
  bool stop = false;             // some rank asks for the end
  bool save = false;             // a save is due by time
  bool save_phase_done = false;  // on all ranks, of the save in flight
};
struct PreemptionChecked {
  std::optional<GracePeriod> preemption{};  // nothing: no signal has come
};
struct Evaluated {
  bool complete = true;  // a signal may have come that left no time for the rest
  bool finite = true;
  std::optional<GracePeriod> preemption{};
};
struct SaveBegun {};
struct SaveEnded {
  int64_t step = 0;
  bool finite = true;
};
struct SaveFailed {
  double minutes = 0;  // since a checkpoint was written or the run began, by the first rank's clock
};
struct Failed {};  // an action could not be done, and no action that was to follow it was
using Event =
    std::variant<StepLaunched, StepEnded, PreemptionChecked, Evaluated, SaveBegun, SaveEnded, SaveFailed, Failed>;
using Events = std::vector<Event>;

struct State {
  Progress progress{};            // of the latest step launched; what was skipped, of the latest that was reported
  Progress last_update{};         // as it was then; before the first of this start, as the run was resumed
  int64_t in_flight = 0;          // steps launched and not reported
  int64_t newest_checkpoint = 0;  // the step of the newest that is finite; 0: there is none
  bool nothing_to_do = false;     // all steps were made before this start

  bool stop = false;      // all ranks know that the time is up, or that a signal has come
  bool save_due = false;  // and that checkpoint.minutes have passed
  bool preemption_checked = false;
  std::optional<GracePeriod> preemption{};

  int64_t evaluated_at = 0, save_tried_at = 0;  // steps; when the run begins, where it stands
  bool validation_is_finite = true;             // the last
  bool lacks_evaluation = false;                // of the latest step, which was to be evaluated

  bool save_in_flight = false;   // an asynchronous one
  bool save_phase_done = false;  // on all ranks
  bool save_waited_for = false;  // a synchronous one is being made
  bool save_failed = false;      // the last one
  bool retry_save = false;       // at once, for the run ends here

  bool gives_up = false;  // too many bad steps
  bool drained = false, last_update_save_tried = false;
  bool failed = false;
};

// A run that begins or is resumed.
State start(const Rules& rules, const Progress& progress, int64_t newest_checkpoint);

// Returns what is to be done in this order, once `events` have come of what was to be done before; at the first call,
// none. It ends where what follows depends on an outcome. Where the run stands changes by events only, so that an
// action finds in `state` what it was decided by.
Actions next(const Rules& rules, State& state, const Events& events);

// One rank knows these when it launches a step.
struct LocalFacts {
  bool first_rank = false;  // whose clock counts
  bool signal = false;      // it has got one
  double minutes_trained = 0;
  double minutes_since_save = 0;  // or since one was tried
};
bool asks_to_stop(const Rules& rules, const LocalFacts& facts);
bool asks_to_save(const Rules& rules, const State& state, const LocalFacts& facts);

}  // namespace megalith::policy
