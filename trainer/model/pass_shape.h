// The sizes and types of a pass through the model, and how much of its forward pass is kept.
#pragma once

#include <cstdint>

#include "kernels/base/tensor.h"
#include "kernels/vocabulary.h"

namespace megalith {

// The size of one pass. The branches work on N = B*T rows, the residual on `rows` of them from first_row on, which
// differ under sequence parallelism only.
struct PassShape {
  int64_t B = 0, T = 0;  // sequences, and the length of each
  int64_t first_row = 0, rows = 0;
  int64_t parts = 1, part = 0;  // heads and features are split into so many parts; which of them is here
  VocabularyPart vocabulary{};  // rows of the token table and columns of logits that are here
  int64_t head_rows = 0;        // rows of logits that exist at a time

  int64_t branch_rows() const { return B * T; }
};

// The types of a pass.
struct PassTypes {
  DType compute = DType::f32;   // of what the branches compute, and of their weights
  DType residual = DType::f32;  // of the residual stream and its gradient: f32, or the same
};

// A layer keeps this much of its forward pass for its backward pass; the rest is computed again.
enum class Kept : uint8_t {
  all,
  products,  // what GEMMs, attention and the edges made, and not what elementwise ops make of it
  input,
};

}  // namespace megalith
