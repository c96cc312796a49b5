// Finds and reads the checkpoint that a run resumes from, or the weights that it begins with.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "trainer/checkpointing/progress.h"
#include "trainer/checkpointing/run_record.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

class Resumer {
 public:
  Resumer(const Config& config, const Session& session, Trainer& trainer,
          std::optional<RunFingerprint> fingerprint = {});

  // Collective. Follows checkpoint.resume: reads weights and optimizer state and returns the run's position, or nullopt
  // if it starts from the beginning. Sets a damaged checkpoint aside with a warning and tries the previous one.
  // JobError if a checkpoint cannot be read for another reason.
  std::optional<Progress> resume();

  // Collective. Reads the weights of checkpoint.init_from (see open_weights).
  void initialize_weights();

  // Collective, after resume(), with a fingerprint. Gives `data` the order in which the run continues, each source from
  // its position, and logs each change. record() has that order afterwards.
  void resume_data(Loader& data);

  // Where the last resume() found the run.
  struct Origin {
    std::string checkpoint{};  // empty: the run starts from the beginning
    std::string decay{};       // other_decay()
  };
  const Origin& origin() const { return origin_; }

  // Returns the record that the run's next checkpoints have.
  const RunRecord& record() const { return record_; }

 private:
  // Reads the frozen weights of a run with adapters: from checkpoint.init_from, or from their path when the run began.
  void read_base(const CheckpointReader& reader);
  std::vector<std::string> checkpoints_to_try() const;
  // Returns whether the run's fingerprint has changed.
  bool check_manifest(const CheckpointReader& reader) const;
  // Collective, after `resumed_` is set. Returns whether data.validation is other data than before.
  bool evaluates_other_data() const;
  Progress load(CheckpointReader& reader);

  const Config& config_;
  const Session& session_;
  Trainer& trainer_;
  RunRecord record_;
  nlohmann::json resumed_;  // state of the checkpoint that the run resumed from, or null
  Progress resumed_at_;
  Origin origin_;
};

}  // namespace megalith
