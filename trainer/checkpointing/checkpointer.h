// Saves a training run together with the other ranks, and finds and reads the checkpoint that it resumes from.
// checkpoints/FORMAT.md describes the files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "trainer/checkpointing/adapted_weights.h"
#include "trainer/checkpointing/background.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/checkpointing/progress.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/sample_orders.h"
#include "trainer/checkpointing/saving.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

// Names the checkpoint from which a run that an anomaly ended goes on.
struct RestartPoint {
  std::string path;  // empty: the run starts from the beginning
  int64_t step = 0;
  int64_t stable_after = 0;             // stable steps that followed it without a gap
  bool last_weights = false;            // it has the last weights, which are stable
  std::vector<std::string> suspects{};  // new names of newer checkpoints, the newest first
};

class Checkpointer {
 public:
  // Saves and compares the fingerprint of rank 0; without one, neither.
  Checkpointer(const Config& config, const Session& session, Trainer& trainer,
               std::optional<RunFingerprint> fingerprint = {});

  // Collective. Writes a complete checkpoint, then deletes those beyond `keep` that are not needed (stability.h),
  // unless `keep_all`. JobError on failure; earlier checkpoints are untouched except for unneeded ones. A checkpoint
  // with values that are not finite is written for diagnosis: nothing is deleted for it, and only a run that names it
  // resumes from it.
  Saved save(const Progress& progress, bool keep_all = false);

  // Does the same asynchronously, where saves_asynchronously(), from a copy of the state: returns once the copy is
  // made. A thread of this rank does the work of a phase (saving.h). The ranks learn that all have done it from the
  // step whose control flags satisfy all_ended(), and then call go_on(). One save at a time.
  void begin_save(const Progress& progress, bool keep_all = false);
  bool saving() const { return async_save_ != nullptr; }
  // Returns the phases that this rank has ended, for a step's control flags.
  int64_t phases() const { return phases_ - (saving() && !async_save_->thread->done()); }
  bool all_ended(int64_t phases) const { return saving() && phases == session_.size() * phases_; }
  // Collective. Starts the next phase and returns nothing, or returns the result of the last one. JobError as of
  // save().
  std::optional<Saved> go_on();
  // Collective. Waits for the end of the save; returns nothing if there is none.
  std::optional<Saved> finish();

  // Collective, after an anomaly has ended the run. Sets checkpoints newer than restart_step() aside as suspect, so
  // that resume() finds that one.
  RestartPoint choose_restart(const Stability& stability, const LastWeights& last);

  // Returns the bytes of tensors that this rank writes in a save.
  int64_t bytes() const;

  // Collective. Follows checkpoint.resume: reads weights and optimizer state and returns the run's position, or nothing
  // when it starts from the beginning. Sets a damaged checkpoint aside with a warning and tries the one before.
  // JobError where a checkpoint cannot be read for another reason.
  std::optional<Progress> resume();

  // Says where the last resume() found the run.
  struct Origin {
    std::string checkpoint{};  // empty: the run starts from the beginning
    std::string decay{};       // other_decay()
  };
  const Origin& origin() const { return origin_; }

  // Collective, after resume(), with a fingerprint. Has `data` come in the order in which the run continues, each
  // source where it was, and says what has changed. Checkpoints tell of that order from now on.
  void go_on_in(Loader& data);
  // Returns how many tokens the run has trained on, in its first `samples` samples.
  int64_t tokens_of(int64_t samples) const {
    return tokens_of_samples(orders_, samples, config_.batch.sequence_length);
  }

  // Collective. Reads the weights of checkpoint.init_from (see open_weights).
  void initialize_weights();

 private:
  // Returns a sentence for each checkpoint that it could not delete. Called on one rank.
  std::vector<std::string> prune(const Stability& stability) const;
  // The weights, of frozen units or of trained ones, or of both, and the state of these.
  enum class Units { all, trained, frozen };
  std::vector<HeldShard> held(Units of, bool parameters_only) const;
  // Reads the frozen weights of a run with adapters: from checkpoint.init_from, or where it was when the run began.
  void read_base(const CheckpointReader& reader);
  std::vector<HeldShard> shards_of(const std::vector<SavedTensor>& tensors) const;
  Saving::Task task(const Progress& progress, bool keep_all, std::vector<ShardToWrite> shards) const;
  std::vector<std::string> checkpoints_to_try() const;
  // Returns whether the run's fingerprint has changed.
  bool check_manifest(const CheckpointReader& reader) const;
  Progress load(CheckpointReader& reader);

  const Config& config_;
  const Session& session_;
  Trainer& trainer_;
  std::optional<RunFingerprint> fingerprint_;
  nlohmann::json resumed_;  // state of the checkpoint that the run resumed from, or null
  Progress resumed_at_;
  nlohmann::json orders_ = nlohmann::json::array();  // of samples, the last one of this start
  std::optional<BaseWeights> base_;                  // of a run with adapters; rank 0's has the fingerprint
  Origin origin_;
  RankFileWriter writer_;
  struct AsyncSave {
    Saving saving;
    std::unique_ptr<Background> thread{};  // the last member: it uses the others
  };
  void begin_phase();
  std::unique_ptr<AsyncSave> async_save_;
  int64_t phases_ = 0;  // begun by all asynchronous saves; the same on every rank
};

}  // namespace megalith
