// A checkpoint once more, in the files that another layout would write. A run resumes from any layout's; but each rank
// then looks through all files that hold something of its own, and reads whole datasets to check them. After `reshard`
// each rank's file holds what that rank needs and nothing else, and there are as many as ranks.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/base/tensor_shard.h"

namespace megalith {

struct ReshardOptions {
  std::string from;                      // a checkpoint, a directory of checkpoints or a run folder
  std::string to;                        // directory of checkpoints, made if needed; TO/step-00000100 is written
  int ranks = 1;                         // of the new layout
  std::vector<std::string> overrides{};  // parallel.*; all else is as in the checkpoint's configuration
  int64_t memory = int64_t{64} << 20;    // bytes that it takes at most, beside what the two manifests take
};

// Returns what that rank of so many saves, in the order of its file: the weights and the optimizer's state.
std::vector<TensorShard> saved_shards(const Config& config, int ranks, int rank);

// Writes what a run of that layout would that has loaded the checkpoint and saves it: the same files, byte by byte, and
// the same manifest but for checkpoint.directory in it. Types stay as they are stored. Tensors of any size are moved in
// blocks that `memory` has room for. A death at any moment leaves no checkpoint or a whole one, and what was begun is
// removed by the next run that prunes or saves there, or by doing the same again. Errors: a checkpoint of that step is
// there; another process uses the directory; the layout does not fit the ranks or the model; the checkpoint holds what
// this program would not save; the memory has no room for a block. Returns the path of what it has written.
std::string reshard(const ReshardOptions& options);

}  // namespace megalith
