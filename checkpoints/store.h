// The checkpoints of one directory: listed, read (CheckpointReader, by path), published and removed. A checkpoint is
// complete when its manifest is intact and of the step in the folder's name, and every file it lists is there with its
// size; a crash can break nothing else, and this is cheap to check. Damage inside the files is found when they are read
// (reader.h).
//
// A complete checkpoint whose manifest counts non-finite values is unusable: it is skipped like an incomplete one, and
// moved aside when a new one of its step is saved; by its own path it can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/manifest.h"
#include "configs/config.h"

namespace megalith {

// Returns 100 for DIR/step-00000100; nothing for other names.
std::optional<int64_t> step_of_folder(const std::string& folder);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;  // a sentence with the file and the numbers
  bool published;      // a step-*; else an unfinished folder that a crash left
};

struct CheckpointListing {
  std::vector<std::string> complete;       // DIR/step-*, newest (highest step) first
  std::vector<SkippedCheckpoint> skipped;  // unusable step-* and unfinished folders, newest first
};

struct Pruned {
  std::vector<std::string> removed;
  std::vector<std::string> failures;  // a sentence for each folder that stays
};

class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory) : directory_(std::move(directory)) {}
  // A run's.
  explicit CheckpointStore(const CheckpointConfig& config) : CheckpointStore(config.directory) {}

  // DIR/step-00000100
  std::string path_of(int64_t step) const;

  // A missing directory has no checkpoints. Error if a directory or file cannot be examined: it may be intact.
  CheckpointListing list() const;
  // Returns the usable checkpoints, newest first.
  std::vector<std::string> usable() const { return list().complete; }
  // Returns the checkpoints of earlier steps from which this step can be repeated, newest first, including non-finite
  // and suspect ones; of one step, suspect ones come last.
  std::vector<std::string> before(int64_t step) const;

  // Creates the directory if needed and, in it, the folder for the rank files; removes what an earlier crash left
  // there. Error if a complete checkpoint of this step exists.
  std::string begin(int64_t step) const;
  // Checks that the files are in the folder that begin() made and hold every element of every tensor, writes the
  // manifest and renames the folder. Renames an incomplete or damaged folder in the way to step-00000100.damaged-K; a
  // complete one is an Error. After an Error nothing is published, and `folder` is removed. Returns the checkpoint's
  // path.
  std::string publish(const std::string& folder, Manifest manifest) const;

  // Removes a checkpoint, or the folder of an unfinished one, if it is there. A crash half way leaves no checkpoint.
  void remove(const std::string& path) const;
  // Removes usable checkpoints beyond the `keep` newest (0: keeps all), except those of the steps that `needed` selects
  // from all their steps, and what earlier crashes left unfinished. Other step-* folders are neither counted nor
  // removed. Must not run while a checkpoint is being written to the directory. A folder that cannot be removed
  // (another process has it open on a network file system, say) stays for the next prune.
  using Needed = std::function<std::set<int64_t>(const std::set<int64_t>& steps)>;
  Pruned prune(int64_t keep, const Needed& needed = {}) const;

 private:
  std::string partial_of(int64_t step) const;

  std::string directory_;
};

// Returns why the folder is not a complete checkpoint of finite values, or "". Error if it cannot be examined.
std::string why_of_no_use(const std::string& folder);

// Renames a checkpoint to <folder>.damaged-K or .suspect-K, so that it is neither used nor counted nor blocks a new one
// of its step. Returns the new path.
enum class Aside { damaged, suspect };
std::string set_aside(const std::string& folder, Aside as = Aside::damaged);

std::set<int64_t> steps_of(const std::vector<std::string>& checkpoints);

}  // namespace megalith
