// The sizes and types of a pass through the model, and how much of its forward pass is kept.
#pragma once

#include <cstdint>

#include "kernels/tensor/tensor.h"
#include "kernels/tensor/vocabulary.h"

namespace megalith {

// The size of one pass. The branches work on N = B*T rows, the residual on `rows` of them starting at first_row; the
// two differ only under sequence parallelism.
struct PassShape {
  int64_t B = 0, T = 0;  // sequences, and the length of each
  int64_t first_row = 0, rows = 0;
  int64_t parts = 1, part = 0;  // heads and features are split into `parts`; this is number `part`
  VocabularyPart vocabulary{};  // the rows of the embedding and the columns of logits of this part
  int64_t head_rows = 0;        // the maximum number of rows of logits at a time

  int64_t branch_rows() const { return B * T; }
};

// The types of a pass.
struct PassTypes {
  DType compute = DType::f32;   // the type of the branches and their weights
  DType residual = DType::f32;  // the type of the residual stream and its gradient: f32, or `compute`
  bool fp8 = false;             // some layers' products are in 8 bits
};

// How much of its forward pass a layer keeps for its backward pass; the rest is recomputed.
enum class Kept : uint8_t {
  all,
  products,  // outputs of matrix products, attention and edges; elementwise ops run again
  input,
};

}  // namespace megalith
