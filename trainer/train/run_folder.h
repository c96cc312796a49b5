// Keeps the folder of a run: run.output/config.toml, log.txt, tokenizer/ and, by Metrics, metrics.jsonl. Locks keep
// other jobs from writing there and into checkpoint.directory.
#pragma once

#include <optional>

#include "configs/config.h"
#include "data/tokenizers/tokenizer.h"
#include "kernels/system/files.h"
#include "kernels/system/folder_lock.h"

namespace megalith {

// Returns the text of config.toml. It does not name checkpoints in the run folder, so that they may move with it, and
// omits checkpoint.allow_changes, which applies only to the start for which it is given.
std::string config_to_keep(Config config);

class RunFolder {
 public:
  // `config` and the tokenizer, which may be null, must outlive it. Rank 0 creates and locks both folders, writes the
  // resolved config and the tokenizer, and logs to the console and log.txt. It renames a different tokenizer/ to
  // tokenizer.earlier-K, a handwritten config.toml to config.earlier-K.toml, and a log.txt that no run has written to
  // log.earlier-K.txt. Other ranks log only the end of the run. Errors: another job uses a folder, or a folder or file
  // cannot be created or written.
  RunFolder(const Config& config, const Tokenizer* tokenizer, int rank);

  // Restores locks, config and tokenizer that were removed during the run, with a warning. Error: another job has taken
  // the folder.
  void restore();

 private:
  const Config& config_;
  const Tokenizer* const tokenizer_;
  std::optional<FolderLock> output_, checkpoints_;
};

}  // namespace megalith
