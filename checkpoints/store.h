// The checkpoints of one directory: listed, read (CheckpointReader, by path), published and removed. A checkpoint is
// complete if its manifest is intact and of the step in the folder's name, and every file it lists exists with its
// size. A crash can break nothing else, and this is cheap to check. Damage inside the files is found when they are read
// (reader.h).
//
// A complete checkpoint whose manifest counts non-finite values is unusable: it is skipped like an incomplete one, and
// moved aside when a new one of its step is saved. It can still be read by its own path.
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

// Returns 100 for DIR/step-00000100; nullopt for other names.
std::optional<int64_t> step_of_folder(const std::string& folder);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;  // a sentence with the file and the numbers
  bool published;      // true: a step-* folder; false: an unfinished folder that a crash left
};

struct CheckpointListing {
  std::vector<std::string> complete;       // DIR/step-*, newest (highest step) first
  std::vector<SkippedCheckpoint> skipped;  // unusable step-* and unfinished folders, newest first
};

struct Pruned {
  std::vector<std::string> removed;
  std::vector<std::string> failures;  // one sentence for each folder that could not be removed
};

class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory) : directory_(std::move(directory)) {}
  // The checkpoints of a run.
  explicit CheckpointStore(const CheckpointConfig& config) : CheckpointStore(config.directory) {}

  // DIR/step-00000100
  std::string path_of(int64_t step) const;

  // Lists the directory; if it is missing, the lists are empty. Error if a directory or file cannot be examined: it may
  // be intact.
  CheckpointListing list() const;
  // Returns the usable checkpoints, newest first.
  std::vector<std::string> usable() const { return list().complete; }
  // Returns the checkpoints of earlier steps from which this step can be repeated, newest first, including non-finite
  // and suspect ones. Of one step, suspect ones come last.
  std::vector<std::string> before(int64_t step) const;

  // Creates the directory if needed and, in it, the folder for the rank files. Removes leftovers of an earlier crash.
  // Error if a complete checkpoint of this step exists.
  std::string begin(int64_t step) const;
  // Checks that the files are in the folder that begin() made and hold every element of every tensor, writes the
  // manifest and renames the folder. If an incomplete or damaged folder has the name already, it is renamed to
  // step-00000100.damaged-K; if a complete one has it, Error. After an Error nothing is published, and `folder` is
  // removed. Returns the checkpoint's path.
  std::string publish(const std::string& folder, Manifest manifest) const;

  // Removes a checkpoint, or an unfinished one's folder, if it exists. A crash in between leaves no checkpoint.
  void remove(const std::string& path) const;
  // Removes usable checkpoints beyond the `keep` newest (0: keeps all), except those of the steps that `needed` selects
  // from all their steps. Also removes unfinished folders of earlier crashes. Other step-* folders are neither counted
  // nor removed. Must not run while a checkpoint is being written to the directory. A folder that cannot be removed
  // (for example because another process has it open on a network file system) stays for the next prune.
  using Needed = std::function<std::set<int64_t>(const std::set<int64_t>& steps)>;
  Pruned prune(int64_t keep, const Needed& needed = {}) const;

 private:
  std::string partial_of(int64_t step) const;

  std::string directory_;
};

// Returns why the folder is not a complete checkpoint of finite values, or "". Error if it cannot be examined.
std::string why_of_no_use(const std::string& folder);

// Renames a checkpoint to <folder>.damaged-K or .suspect-K, so that it is no longer used or counted, and does not block
// a new one of its step. Returns the new path.
enum class Aside { damaged, suspect };
std::string set_aside(const std::string& folder, Aside as = Aside::damaged);

std::set<int64_t> steps_of(const std::vector<std::string>& checkpoints);

}  // namespace megalith
