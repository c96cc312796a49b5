// Writes the checkpoints of a run for its policy (policy.h), logs them, and reports their times to Preemption.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/train/policy.h"
#include "trainer/train/preemption.h"

namespace megalith {

inline double minutes_since(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count() / 60;
}

// Collective. Returns the step of the newest finite checkpoint in the folder, or 0.
int64_t newest_checkpoint(const CheckpointConfig& config, const Session& session);

class Saves {
 public:
  // The arguments must outlive it.
  Saves(const Config& config, const Session& session, Checkpointer& checkpointer, Preemption& preemption);

  // Starts the clock of checkpoint.minutes.
  void begin() { tried_ = succeeded_ = std::chrono::steady_clock::now(); }
  // Returns the minutes since the last save, successful or not, or begin().
  double minutes_since_save() const { return minutes_since(tried_); }

  // The policy's actions of the same names. All are collective.
  policy::Event save(const Progress& progress, bool prune);
  policy::Event begin_save(const Progress& progress, bool prune);
  std::optional<policy::Event> advance() { return asynchronously(&Checkpointer::advance); }
  std::optional<policy::Event> finish() { return asynchronously(&Checkpointer::finish); }
  void warn_failed() const;
  void warn_last_update_unsaved() const;
  void wait_to_retry(double seconds) const;
  [[noreturn]] void fail_patience() const;
  [[noreturn]] void fail_not_finite(const Stability& stability);

 private:
  std::optional<policy::Event> asynchronously(std::optional<SavedCheckpoint> (Checkpointer::*part)());
  policy::Event ended(const SavedCheckpoint& saved);
  policy::Event failed(const std::string& why);
  std::string since_success() const;

  const Config& config_;
  const Session& session_;
  Checkpointer& checkpointer_;
  Preemption& preemption_;
  std::chrono::steady_clock::time_point tried_, succeeded_;  // last saves; initially the start
  SavedCheckpoint last_;
  struct Failure {
    std::string why;
    double minutes = 0;  // since a successful save, by the first rank's clock
  };
  Failure failure_;  // the last failure
};

}  // namespace megalith
