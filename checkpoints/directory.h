// The checkpoints of one directory. A checkpoint is complete when its manifest is intact, of the step that the folder's
// name says, and every file it lists is there with its size; this is what a death at any moment can break, and it is
// cheap to check. Damage inside the files is found when they are read (reader.h).
//
// One whose manifest counts values that are not finite is complete and of no use to go on from. It is skipped like one
// that is not complete, and moved aside where a new one of its step has to go; by its own path it can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace megalith {

// Of DIR/step-00000100: 100; nothing for a folder of another name.
std::optional<int64_t> step_of_folder(const std::string& folder);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;  // a sentence with the file and the numbers
  bool published;      // a step-*, which was complete once or is; else one that a death left unfinished
};

struct CheckpointListing {
  std::vector<std::string> complete;       // DIR/step-*, newest (highest step) first
  std::vector<SkippedCheckpoint> skipped;  // step-* that are of no use, and unfinished folders; newest first
};

// A directory that does not exist has no checkpoints. A directory or a file of a checkpoint that cannot be examined is
// an Error: it may be intact.
CheckpointListing scan_checkpoints(const std::string& directory);

// Only those of use, newest first.
std::vector<std::string> list_checkpoints(const std::string& directory);

// Why the folder is no complete checkpoint of finite values; empty when it is one. Error where it cannot be examined.
std::string why_of_no_use(const std::string& folder);

// Renames a checkpoint to <folder>.damaged-K or .suspect-K, so that it is neither used, nor counted, nor in the way of
// a new one of its step. Returns the new path.
enum class Aside { damaged, suspect };
std::string set_aside(const std::string& folder, Aside as = Aside::damaged);

// The checkpoints of steps before this one, the newest first, whatever they hold and whether or not they were set aside
// as suspect: what a step can be repeated from. Of one step those that were not come first.
std::vector<std::string> checkpoints_before(const std::string& directory, int64_t step);

// Removes checkpoints of use beyond the `keep` newest (0: keeps all), but for those of the steps that `needed` says of
// all their steps, and the unfinished folders of earlier deaths. Other step-* folders are neither counted nor removed.
// Must not run while a checkpoint is being written to the same directory. What cannot be removed (another reader has it
// open on a network's file system, say) stays, for the next prune to try again.
struct Pruned {
  std::vector<std::string> removed;
  std::vector<std::string> failures;  // a sentence for each folder that stays
};
using Needed = std::function<std::set<int64_t>(const std::set<int64_t>& steps)>;
Pruned prune_checkpoints(const std::string& directory, int64_t keep, const Needed& needed = {});

std::set<int64_t> steps_of(const std::vector<std::string>& checkpoints);

}  // namespace megalith
