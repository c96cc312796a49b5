// Where in memory the microbatches of a rank's chunks lie, by the numbers of program.h: a pure function of the plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/program/program.h"

namespace megalith {

// Numbers [first, first + count) that microbatches take in turn.
struct Turns {
  int32_t first = 0, count = 0;
  int32_t of(int64_t microbatch) const { return first + as_number(microbatch % count); }
};

// The memory of a chunk. ChunkPlacement says how many residuals there are, so that messages travel while others are
// worked on. Where a V turns, two chunks share what would be messages.
struct ChunkMemory {
  Turns inputs, outputs, gradients;  // residuals: of the first layer, of the last, of either on the way back
  Turns slots;                       // microbatches alive
  Turns batches;                     // the same, up to the half for weights where there is one
  int32_t between = 0, saved = 0;    // of the first slot: inputs of the groups but the first, what layers save
  int32_t inside = 0;                // inputs of the layers of a group but the first, which all groups share
  int64_t layers = 0, group = 1;

  int32_t slot(int64_t microbatch) const { return slots.of(microbatch) - slots.first; }
  int64_t groups() const { return (layers + group - 1) / group; }
  // The input of layer i of the chunk; of the layer after the last, the output.
  int32_t x(int64_t microbatch, int64_t i) const {
    if (i == 0) return inputs.of(microbatch);
    if (i == layers) return outputs.of(microbatch);
    if (i % group != 0) return inside + as_number(i % group - 1);
    return between + as_number(slot(microbatch) * (groups() - 1) + i / group - 1);
  }
  int32_t saved_of(int64_t microbatch, int64_t i) const { return saved + as_number(slot(microbatch) * layers + i); }
};

// Returns the memory of each chunk of the rank. Without `training`, one microbatch of each is alive.
std::vector<ChunkMemory> lay_out(const Plan& plan, bool training);

}  // namespace megalith
