// Saves a training run together with the other ranks, at once or asynchronously.
// checkpoints/FORMAT.md describes the files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpointing/background.h"
#include "trainer/checkpointing/progress.h"
#include "trainer/checkpointing/run_record.h"
#include "trainer/checkpointing/saving.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

class Checkpointer {
 public:
  // Collective. JobError: there is too little memory for HDF5 and for the writer.
  Checkpointer(const Config& config, const Session& session, Trainer& trainer, RunRecord record = {});

  // Collective. Writes a complete checkpoint, then deletes those beyond `keep` that are not needed (stability.h),
  // unless `keep_all`. JobError on failure; earlier checkpoints are untouched except for unneeded ones. A checkpoint
  // with values that are not finite is written for diagnosis: nothing is deleted for it, and only a run that names it
  // resumes from it.
  SavedCheckpoint save(const Progress& progress, bool keep_all = false);

  // Saves asynchronously, if saves_asynchronously(), from a copy of the state, and returns once the copy is made. A
  // thread of this rank does the work of a phase (saving.h). The ranks learn that all have finished it from the step
  // whose control flags satisfy all_ended(), and then call advance(). One save at a time.
  void begin_save(const Progress& progress, bool keep_all = false);
  bool saving() const { return async_save_ != nullptr; }
  // Returns the phases that this rank has ended, for a step's control flags.
  int64_t phases() const { return phases_ - (saving() && !async_save_->thread->done()); }
  bool all_ended(int64_t phases) const { return saving() && phases == session_.size() * phases_; }
  // Collective. Starts the next phase and returns nullopt, or returns the result of the last one. JobError as in
  // save().
  std::optional<SavedCheckpoint> advance();
  // Collective. Waits for the end of the save, if one is in progress; otherwise returns nullopt.
  std::optional<SavedCheckpoint> finish();

  // Returns the bytes of tensors that this rank writes in a save.
  int64_t bytes() const;

 private:
  // Returns a sentence for each checkpoint that it could not delete. Called on one rank.
  std::vector<std::string> prune(const Stability& stability) const;
  Saving::Task task(const Progress& progress, bool keep_all, std::vector<ShardToWrite> shards) const;

  const Config& config_;
  const Session& session_;
  Trainer& trainer_;
  const RunRecord record_;
  RankFileWriter writer_;
  struct AsyncSave {
    Saving saving;
    std::unique_ptr<Background> thread{};  // the last member: it uses the others
  };
  void begin_phase();
  std::unique_ptr<AsyncSave> async_save_;
  int64_t phases_ = 0;  // phases begun by all asynchronous saves; the same on every rank
};

}  // namespace megalith
