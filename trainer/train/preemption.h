// Ends a run early when a signal asks for it (session/signal_watch.h): the ranks agree after the step in flight, save
// if there is time, and log what was saved or lost.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "configs/config.h"
#include "trainer/session/session.h"
#include "trainer/session/signal_watch.h"

namespace megalith {

// The exit status of a run that a signal has ended after a save: EX_TEMPFAIL of sysexits.h ("try again later"). The
// same command continues the run.
constexpr int ended_by_signal = 75;

class Preemption {
 public:
  // Before begin() a signal ends this rank at once, with a line in the log and on standard error. The arguments must
  // outlive it.
  Preemption(const CheckpointConfig& config, const Session& session);

  // After this call a signal waits for the step in flight.
  void begin(int64_t completed);
  void trained(int64_t step);
  // Returns whether this rank has got a signal.
  bool asked() const { return watch_->asked().has_value(); }

  // These do the work and measure its time.
  void evaluate(const std::function<void()>& work);
  void save(const std::function<void()>& work);
  void begin_asynchronous_save();
  void end_asynchronous_save(double seconds);

  // Collective. Returns whether a rank has got a signal. `bytes` of this rank's save and `batches` of an evaluation
  // give the expected times if nothing was measured yet.
  bool agree(int64_t bytes, int64_t batches);
  // Collective, after `made` of the `batches` of an evaluation. Returns false if a signal leaves no time for the rest
  // and a save.
  bool continues_evaluating(int64_t bytes, int64_t made, int64_t batches);
  bool agreed() const { return agreed_.has_value(); }
  bool time_to_save() const;
  bool time_to_evaluate() const;  // with a save

  // Logs the end of the run, after agree(), and returns the exit status: ended_by_signal, or 128 plus the signal.
  int log_end(bool saved) const;

 private:
  struct Agreed {
    int signal = 0;                   // that of the lowest rank
    std::string who;                  // "SIGUSR1 on rank 0, 2"
    double seconds_left = 0;          // minimum over the ranks
    std::string bound;                // the source of seconds_left, in words
    double evaluation = 0, save = 0;  // expected seconds, maximum over the ranks
  };
  bool agree_with_time(int64_t bytes, double evaluation);
  double seconds_needed() const;
  void end_now(int status, const std::string& why) const;
  struct Left {
    bool everything = false;  // all steps are in a checkpoint
    std::string words;
  };
  Left what_is_left() const;
  double seconds_a_step() const;

  const CheckpointConfig& config_;
  const Session& session_;
  // All times are seconds, of the steady clock; 0: none yet.
  int64_t completed_ = 0;  // steps at begin()
  double began_ = 0;
  double left_by_mpirun_ = 0;  // between Ctrl-C and mpirun's kill; 0: the user wants no delay
  double longest_evaluation_ = 0;
  double evaluation_began_ = 0;
  double longest_asynchronous_ = 0;  // save
  double asynchronous_since_ = 0;    // begin of the save under way
  // The watch's thread also reads these.
  std::atomic<int64_t> trained_{0};
  std::atomic<double> trained_at_{0}, shortest_step_{0}, longest_save_{0};
  std::optional<Agreed> agreed_;
  std::optional<SignalWatch> watch_;  // the last member: its thread uses the others
};

}  // namespace megalith
