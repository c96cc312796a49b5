// Checkpointing of a training run: which shards this rank keeps, saving them together with the other ranks, and finding
// and reading the newest complete checkpoint. checkpoints/FORMAT.md describes the files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "trainer/checkpointing/background.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/checkpointing/progress.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/saving.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

// What a run has left that trouble ended.
struct RestartPoint {
  std::string path;                     // of the checkpoint that it goes on from; empty: it starts from the beginning
  int64_t step = 0;                     // of that
  int64_t stable_after = 0;             // steps in a row that followed it
  bool last_weights = false;            // it has those that the run ended with, which are stable
  std::vector<std::string> suspects{};  // newer ones, under their new names, the newest first
};

// Checks that what checkpoint.resume and checkpoint.init_from name exists and is of this model and, where it is
// resumed, of this course, and that no save will collide with an existing checkpoint. Opens manifests only; for one
// rank, before anything is written.
void check_start(const Config& config, const RunFingerprint& fingerprint);

// The Config of a run: load_config, where the weights of checkpoint.init_from give the keys of [model] that are not
// set; where these weights are gone and the run has checkpoints, their newest does.
Config load_run_config(const std::string& toml_path, const std::vector<std::string>& overrides);

class Checkpointer {
 public:
  // The course of rank 0 is the one that counts; without one, checkpoints keep none and none is compared.
  Checkpointer(const Config& config, const Session& session, Trainer& trainer,
               std::optional<RunFingerprint> fingerprint = {});

  // Collective. Writes a complete checkpoint, then deletes those beyond `keep` that are not needed any more
  // (stability.h), unless `keep_all`. JobError when it cannot; the ones before are untouched, but for what could have
  // been deleted after them already. A checkpoint of values that are not finite is written, for whoever looks for their
  // cause, and nothing is deleted for it; no run goes on from it unless it is named.
  Saved save(const Progress& progress, bool keep_all = false);

  // The same beside the steps that follow, from a copy of what is saved, where saves_asynchronously(): the caller goes
  // on once the copy is made. One at a time. A thread of this rank does the work of a phase (saving.h); that all ranks
  // have done it they learn from the step whose scalars say all_ended(), and then go_on(), to the next or to the end.
  void begin_save(const Progress& progress, bool keep_all = false);
  bool saving() const { return async_save_ != nullptr; }
  // For the control flags of a step.
  int64_t phases() const { return phases_ - (saving() && !async_save_->thread->done()); }
  bool all_ended(int64_t phases) const { return saving() && phases == session_.size() * phases_; }
  // Collective, after a step launched since begin_save(); nothing: it goes on. JobError as of save().
  std::optional<Saved> go_on();
  // Collective, and waits for the end; nothing: there was none to wait for.
  std::optional<Saved> finish();

  // Collective, once trouble has ended the run: chooses what it goes on from (restart_step), so that
  // resume() finds it, and sets newer checkpoints aside as suspect.
  RestartPoint choose_restart(const Stability& stability, const LastWeights& last);

  // Bytes that this rank writes in a save, but for what little describes them.
  int64_t bytes() const;

  // Collective. Follows checkpoint.resume: fills weights and optimizer state and says where the run stood, or nothing
  // when the run starts from the beginning. A damaged checkpoint is set aside and the one before is tried, with a
  // warning in the log; one that cannot be read for another reason is a JobError.
  std::optional<Progress> resume();

  // Collective. Weights from checkpoint.init_from (see open_weights).
  void initialize_weights();

 private:
  // Deletes what is not needed, and says what it could not delete. On one rank.
  std::vector<std::string> prune(const Stability& stability) const;
  // Every shard of state of this rank.
  std::vector<HeldShard> held(bool parameters_only) const;
  // Of what it saves.
  std::vector<HeldShard> shards_of(const std::vector<SavedTensor>& tensors) const;
  Saving::Task task(const Progress& progress, bool keep_all, std::vector<ShardToWrite> shards) const;
  Progress load(CheckpointReader& reader);

  const Config& config_;
  const Session& session_;
  Trainer& trainer_;
  std::optional<RunFingerprint> fingerprint_;
  nlohmann::json resumed_;  // the state that was resumed from; null: none
  Progress resumed_at_;
  RankFileWriter writer_;
  struct AsyncSave {
    Saving saving;
    std::unique_ptr<Background> thread{};  // the last member: it uses the other
  };
  void begin_phase();
  std::unique_ptr<AsyncSave> async_save_;
  int64_t phases_ = 0;  // begun, of all saves beside the steps; the same on every rank
};

}  // namespace megalith
