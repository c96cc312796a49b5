// The checkpoints of one directory. A checkpoint is complete when its manifest is intact, of the step that the folder's
// name says, and every file it lists is there with its size; this is what a death at any moment can break, and it is
// cheap to check. Damage inside the files is found when they are read (reader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

// Of DIR/step-00000100: 100; nothing for a folder of another name.
std::optional<int64_t> step_of_folder(const std::string& folder);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;  // a sentence with the file and the numbers
  bool published;      // a step-*, which was complete once; else one that a death left unfinished
};

struct CheckpointListing {
  std::vector<std::string> complete;       // DIR/step-*, newest (highest step) first
  std::vector<SkippedCheckpoint> skipped;  // step-* that are not complete, and unfinished folders; newest first
};

// A directory that does not exist has no checkpoints. A directory or a file of a checkpoint that cannot be examined is
// an Error: it may be intact.
CheckpointListing scan_checkpoints(const std::string& directory);

// Only the complete ones, newest first.
std::vector<std::string> list_checkpoints(const std::string& directory);

// Why the folder is not a complete checkpoint; empty when it is one. Error where it cannot be examined.
std::string why_incomplete(const std::string& folder);

// Renames a damaged checkpoint to <folder>.damaged-K, so that it is neither used, nor counted, nor in
// the way of a new one of its step. Returns the new path.
std::string set_aside(const std::string& folder);

// Removes complete checkpoints beyond the `keep` newest (0: keeps all), and the unfinished folders of earlier deaths.
// Incomplete step-* folders are neither counted nor removed. Must not run while a checkpoint is being written to the
// same directory. Returns the paths removed.
std::vector<std::string> prune_checkpoints(const std::string& directory, int64_t keep);

}  // namespace megalith
