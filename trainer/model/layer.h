// This header has what every layer of the model is given besides tensors, and how much of a forward pass is kept.
//
// A layer is an object. It declares its parameters as it is made and holds none: they are handed to each call as the
// tensors of its unit (UnitTensors). It has a struct Saved of what its backward pass needs of its forward pass, and
// gives that memory (allocate). Its backward pass has two halves, the gradient of its input and those of its weights;
// the second may come at any time after the first. What it can compute again from the rest is in recompute.
#pragma once

#include "kernels/base/arena.h"
#include "kernels/base/stream.h"
#include "kernels/dropout.h"
#include "kernels/vocabulary.h"
#include "trainer/model/edge.h"
#include "trainer/model/spec.h"

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

struct Context {
  Stream& s;
  Arena& scratch;
  const Edge& edge;
  const PassShape& pass;
  Dropout dropout{};  // probability, seed, step and first row of the residual; the site is set where it is used
  double adapter_dropout = 0;  // its probability; 0 outside of training
  Tensor starts{};  // (B, T) i32: where the document of each row begins (attention.h, embedding.h); empty: they share

  Dropout dropout_at(int32_t site) const {
    Dropout d = dropout;
    d.site = site;
    return d;
  }
  // For the rows of the pass from this one on.
  Context from_row(int64_t row) const {
    Context c = *this;
    c.dropout.first_row += row;
    return c;
  }
};

// A layer keeps this much of its forward pass for its backward pass; the rest is computed again.
enum class Kept : uint8_t {
  all,
  products,  // what GEMMs, attention and the edges made, and not what elementwise ops make of it
  input,
};

}  // namespace megalith
