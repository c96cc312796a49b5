// The folder of a run: run.output/config.toml, log.txt, tokenizer/ and, by Metrics, metrics.jsonl. No other job writes
// there, nor into checkpoint.directory, for as long as this one lives. What others remove of it comes back.
#pragma once

#include <optional>

#include "configs/config.h"
#include "data/tokenizer.h"
#include "kernels/system/files.h"
#include "kernels/system/folder_lock.h"

namespace megalith {

// What config.toml says: where checkpoints lie in the run folder, their folder is not named, so that it may move with
// it.
std::string config_to_keep(Config config);

class RunFolder {
 public:
  // `config` and the tokenizer, which may be null, outlive it. Rank 0 creates both folders and locks them, writes the
  // resolved config and, if there is one, the tokenizer, and from then on logs to the console and to log.txt. A
  // tokenizer/ that holds another is kept as tokenizer.earlier-K, a config.toml that somebody wrote as
  // config.earlier-K.toml, a log.txt that no run has begun as log.earlier-K.txt. The other ranks keep silent, but for
  // how the run ended (log_ended). Errors: a folder that another job uses; one that holds files of another under names
  // of a run; a folder or file that cannot be created or written.
  RunFolder(const Config& config, const Tokenizer* tokenizer, int rank);

  // A save begins with this: locks, config and tokenizer that were removed under the run are there again, and a warning
  // says so. Error: another job has taken the folder since.
  void restore();

 private:
  const Config& config_;
  const Tokenizer* const tokenizer_;
  std::optional<FolderLock> output_, checkpoints_;
};

}  // namespace megalith
