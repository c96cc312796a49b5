// The checkpoints of a run, written as its policy (policy.h) says: what was saved is logged, what could not be is kept
// to be said, and the preemption learns how long saves take.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/train/policy.h"
#include "trainer/train/preemption.h"

namespace megalith {

// Collective: the step of the newest checkpoint in the folder that is finite; 0: there is none. A run that resumes one
// by name need not go on from this.
int64_t newest_checkpoint(const std::string& directory, const Session& session);

class Saves {
 public:
  // All outlive it.
  Saves(const Config& config, const Session& session, Checkpointer& checkpointer, Preemption& preemption);

  // The clock of checkpoint.minutes starts.
  void begin();
  // Counts by the clock of this rank, since a save was last tried or the run began.
  double minutes_since_save() const;

  // The actions of these names, with their events; all are collective.
  policy::Event save(const Progress& progress, bool prune);
  policy::Event begin_save(const Progress& progress, bool prune);
  std::optional<policy::Event> advance() { return asynchronously(&Checkpointer::go_on); }
  std::optional<policy::Event> finish() { return asynchronously(&Checkpointer::finish); }
  void warn_failed() const;
  void warn_last_update_unsaved() const;
  void wait_to_retry(double seconds) const;
  [[noreturn]] void fail_patience() const;                  // of the save that failed last
  [[noreturn]] void fail_not_finite(const Sanity& sanity);  // of the one that ended last

 private:
  using Part = std::optional<Saved> (Checkpointer::*)();
  std::optional<policy::Event> asynchronously(Part part);
  policy::Event ended(const Saved& saved);
  policy::Event failed(const std::string& why);
  std::string since_success() const;

  const Config& config_;
  const Session& session_;
  Checkpointer& checkpointer_;
  Preemption& preemption_;
  using Time = std::chrono::steady_clock::time_point;
  Time tried_, succeeded_;  // until the first of this start, when it began
  Saved last_;              // that ended
  struct Failure {
    std::string why;
    double minutes = 0;  // since a save succeeded, by the first rank's clock
  };
  Failure failure_;  // the last
};

}  // namespace megalith
