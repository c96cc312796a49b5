// How many layers each stage of the pipeline gets: a pure function of the numbers. chunk_placement.h decides which
// chunks belong to a stage. The embedding belongs to the first chunk, the final norm and the head to the last.
#pragma once

#include <vector>

#include "configs/config.h"
#include "trainer/schedule/chunk_placement.h"

namespace megalith {

struct StageCosts {
  int64_t layers;
  double embedding, head;  // relative to a layer's cost
};

// The law: a cost is the mean of two shares, both relative to one layer:
//   compute: FLOPs per token, with causal attention over the sequence, as model_flops_per_token counts them;
//   memory: parameters, in proportion to which gradients and optimizer state are as well.
// The embedding has only memory, the head both; a tied embedding counts at both ends. model.vocab must be set.
StageCosts stage_costs(const ModelConfig& model, int64_t sequence_length);

// Returns the number of layers of each chunk, at least one. A stage's load is the sum over its chunks; the largest load
// is as small as possible. Of equal loads the larger goes to the later stage, which keeps fewer microbatches alive. A
// stage's layers are divided among its chunks in the same way. There are no more chunks than layers.
std::vector<int64_t> split_layers(const StageCosts& costs, const ChunkPlacement& placement);

}  // namespace megalith
