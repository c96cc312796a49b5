// Rewrites a checkpoint into the files that another layout would write. A run resumes from any layout's files, but then
// each rank opens every file that holds a part of its own, and reads whole datasets to check them. After `reshard` each
// rank's file holds exactly what that rank needs.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/tensor/tensor_shard.h"
#include "trainer/layout/plan.h"

namespace megalith {

struct ReshardOptions {
  std::string from;  // a checkpoint, a directory of checkpoints or a run folder
  std::string to;    // directory of checkpoints, made if needed; TO/step-00000100 is written
  int ranks = 1;
  std::vector<std::string> overrides{};  // parallel.*; all else is as in the checkpoint's configuration
  int64_t memory = int64_t{64} << 20;    // maximum bytes, not counting the two manifests
};

// Returns the shards that the plan's rank saves, in the order of its file: the weights and the optimizer's state.
std::vector<TensorShard> saved_shards(const Config& config, const Plan& plan);

// Writes what a run of the new layout would save right after loading the checkpoint: the same files, byte by byte, and
// the same manifest except for checkpoint.directory. Moves tensors of any size in blocks that fit `memory`. A crash
// leaves no checkpoint or a whole one; the next save, prune or reshard there removes the rest. Throws Error if a
// checkpoint of that step exists, another process uses the directory, the layout does not fit the ranks or the model,
// the checkpoint holds tensors that this program would not save, or `memory` is too small for a block. Returns the new
// path.
std::string reshard(const ReshardOptions& options);

}  // namespace megalith
