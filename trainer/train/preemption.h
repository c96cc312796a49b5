// How a run ends before its last step because it is asked to from outside (job/signal_watch.h): all ranks agree on it
// after the step in flight, save if the time suffices, and say what was saved or lost.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "configs/config.h"
#include "trainer/session/session.h"
#include "trainer/session/signal_watch.h"

namespace megalith {

// The exit status of a run that a signal has ended, with its last step in a checkpoint: the same command goes on from
// there. EX_TEMPFAIL of sysexits.h, "try again later".
constexpr int ended_by_signal = 75;

class Preemption {
 public:
  // From here on this rank ends at once by a signal, and says so in the log and on standard error. Both outlive it.
  Preemption(const CheckpointConfig& config, const Session& session);

  // From here on steps are lost that no checkpoint has: a signal waits for the step in flight, as long as it may.
  void begin(int64_t completed);
  void trained(int64_t step);
  // Whether this rank has got a signal.
  bool asked() const { return watch_->asked().has_value(); }

  // These do the work and remember how long it took.
  void evaluate(const std::function<void()>& work);
  void save(const std::function<void()>& work);
  // One that is made beside the steps begins, and has ended after so many seconds of work.
  void begin_asynchronous_save();
  void end_asynchronous_save(double seconds);

  // Collective. Whether a signal is what some rank has asked to stop for. `bytes` are those that this rank writes in a
  // save, `batches` those of an evaluation: where none was made before, that is what they are expected to take by.
  bool agree(int64_t bytes, int64_t batches);
  // Collective, between the batches of an evaluation, where `made` of `batches` are made: false if a signal has come
  // that leaves no time for the others and a save.
  bool goes_on_evaluating(int64_t bytes, int64_t made, int64_t batches);
  // What all ranks have agreed upon; nothing: no signal ends the run.
  bool agreed() const { return agreed_.has_value(); }
  bool time_to_save() const;
  bool time_to_evaluate() const;  // and to save

  // Says how the run has ended, after agree(), and returns the exit status: ended_by_signal, or 128 and the signal.
  int say(bool saved) const;

 private:
  struct Agreed {
    int signal = 0;                   // of the lowest rank that got one
    std::string who;                  // "SIGUSR1 on rank 0, 2"
    double seconds_left = 0;          // of the rank that has the least
    std::string bound;                // what sets it there, in words
    double evaluation = 0, save = 0;  // seconds that they are expected to take, on the rank that expects the most
  };
  SignalWatch::Rules rules();
  void warn_of_mpirun(double step_seconds);
  bool agree_with_time(int64_t bytes, double evaluation);
  double seconds_needed() const;
  void end_now(int status, const std::string& why) const;
  // By the newest checkpoint, if the run ends here.
  struct Left {
    bool everything = false;  // that was trained
    std::string words;
  };
  Left what_is_left() const;
  double seconds_a_step() const;

  const CheckpointConfig& config_;
  const Session& session_;
  int64_t completed_ = 0;          // when the steps began
  double began_ = 0;               // of the steady clock, in seconds, as all of these
  double left_by_mpirun_ = 0;      // seconds after a Ctrl-C; 0: whoever set that wants no end but at once
  double longest_evaluation_ = 0;  // 0: none yet
  double evaluation_began_ = 0;
  double longest_asynchronous_ = 0;  // save, beside the steps; 0: none yet
  double asynchronous_since_ = 0;    // the one under way; 0: there is none
  // What the thread of the watch reads as well.
  std::atomic<int64_t> trained_{0};
  std::atomic<double> trained_at_{0}, shortest_step_{0}, longest_save_{0};
  std::optional<Agreed> agreed_;
  std::optional<SignalWatch> watch_;  // the last member: its thread uses the others
};

}  // namespace megalith
