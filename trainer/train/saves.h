// The checkpoints of a run: when one is due by time, how it is written beside the steps or before the next, and what
// follows where one cannot be written, as on a full disk. The run warns, goes on and tries again, until
// checkpoint.patience is over.
#pragma once

#include <chrono>
#include <optional>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/train/ending.h"

namespace megalith {

// All calls but begin() and is_due() are collective. JobError: checkpoint.patience is over, or a checkpoint holds
// values that are not finite, since nothing that follows from them can be.
class Saves {
 public:
  // All outlive it. `progress` is that of the run, whose sanity says where one goes back to.
  Saves(const Config& config, const Session& session, Checkpointer& checkpointer, Ending& ending,
        const Progress& progress);

  // The step of the newest checkpoint that is finite; 0: there is none. A run that resumes one by name need not go on
  // from this.
  int64_t newest() const { return newest_; }

  // The clock of checkpoint.minutes starts.
  void begin();
  // By the clock of this rank.
  bool is_due() const;

  // Saves the state as it is. Beside the steps that follow, if it may be and the run does not end here; else it returns
  // with the checkpoint written or, where steps follow, with a warning.
  void save(bool keep_all, bool ends);
  // A part, or the rest, of what save() has begun beside the steps; nothing where it has begun none.
  void go_on() { beside_steps(&Checkpointer::go_on); }
  void finish() { beside_steps(&Checkpointer::finish); }

  // Saves an earlier state of a run that gives up. All checkpoints are kept, and a failure is a warning.
  void save_at_last(const Progress& progress);

 private:
  using Part = std::optional<Saved> (Checkpointer::*)();
  void beside_steps(Part part);
  bool now(bool keep_all);  // whether it is saved
  void bear(const std::string& no_checkpoint);
  void note(const Saved& saved);
  void check_finite(const Saved& saved) const;

  const Config& config_;
  const Session& session_;
  Checkpointer& checkpointer_;
  Ending& ending_;
  const Progress& progress_;
  int64_t newest_ = 0;
  using Time = std::chrono::steady_clock::time_point;
  Time tried_, succeeded_;  // until the first of this start, when it began
  bool failed_ = false;     // the last one
};

}  // namespace megalith
