// Where the microbatches of a rank's chunks are in memory, by the numbers of program.h: a pure function of the plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/program/program.h"

namespace megalith {

// Numbers [first, first + count) that microbatches use in turn.
struct Turns {
  int32_t first = 0, count = 0;
  int32_t of(int64_t microbatch) const { return first + as_number(microbatch % count); }
};

// The memory of a chunk. ChunkPlacement gives the number of residuals, which is large enough for messages to overlap
// with computation. Where a V turns, two chunks share the residuals that would otherwise be messages.
struct ChunkMemory {
  Turns inputs, outputs, gradients;  // residuals: input of the first layer, output of the last, and their gradients
  Turns slots;                       // one for each live microbatch
  Turns batches;                     // likewise, up to the weight half of the backward pass if there is one
  int32_t between = 0, saved = 0;    // first number of slot 0: group inputs except the first; saved tensors
  int32_t inside = 0;                // inputs of the layers of a group except the first; all groups share them
  int64_t layers = 0, group = 1;

  int32_t slot(int64_t microbatch) const { return slots.of(microbatch) - slots.first; }
  int64_t groups() const { return (layers + group - 1) / group; }
  // Returns the input of layer i of the chunk or, for the layer after the last, the output.
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
