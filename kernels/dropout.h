// Dropout: an element is kept with probability 1 - p and then scaled by 1 / (1 - p). Nothing is stored for the backward
// pass: the mask is drawn again, as a pure function of the key, so it does not depend on layout, microbatch or recompute.
// Source: Srivastava et al., Dropout, JMLR 15, 2014.
#pragma once

#include <cstdint>

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

// Names the mask of one place in the model in one step. Element (r, c) of a tensor of `cols` columns uses the counter
// (first_row + r, c) under (seed, step, site); in attention, element (query row, head, key position).
struct Dropout {
  double p = 0;           // probability of being dropped; 0 turns everything off
  uint64_t seed = 0;
  int64_t step = 0;
  int32_t site = 0;       // which dropout of the model, e.g. 3 * layer + k
  int64_t first_row = 0;  // global row (sample * T + position) of the tensor's first row

  bool active() const { return p > 0; }
};

// y = mask * x / (1 - p); in place when y and x are the same memory. Forward and backward are this same function.
//   y, x: (N, C), f32 or bf16.
void dropout(Stream& s, Tensor y, Tensor x, const Dropout& d);

}  // namespace megalith
