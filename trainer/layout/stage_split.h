// Which stage of the pipeline gets how many layers: a pure function of the numbers. chunk_placement.h says which chunks
// are a stage's. The embedding belongs to the first chunk, the final norm and the head to the last.
#pragma once

#include <vector>

#include "configs/config.h"
#include "trainer/schedule/chunk_placement.h"

namespace megalith {

struct StageCosts {
  int64_t layers;
  double embedding, head;  // 1 is what a layer costs
};

// The law: a cost is the mean of two shares, both relative to one layer,
//   compute: FLOPs per token, with causal attention over the sequence, as model_flops_per_token counts them;
//   memory: parameters, which stand for gradients and optimizer state as well.
// The embedding has memory only, the head both; the tied table counts at either end. model.vocab must be set.
StageCosts stage_costs(const ModelConfig& model, int64_t sequence_length);

// Layers of each chunk, at least one. A stage's load is the sum over its chunks; the largest is as small as can be.
// Equal loads go to the later stage, which keeps fewer microbatches alive. A stage's layers are dealt to its chunks in
// the same way. There are no more chunks than layers.
std::vector<int64_t> split_layers(const StageCosts& costs, const ChunkPlacement& placement);

}  // namespace megalith
