// This header has what every layer of the model is given besides tensors.
//
// A layer is an object. It declares its parameters as it is made and holds none: they are handed to each call as the
// tensors of its unit (UnitTensors). It has a struct Saved of what its backward pass needs of its forward pass, and
// gives that memory (allocate). Its backward pass has two halves, the gradient of its input and those of its weights;
// the second may come at any time after the first. What it can compute again from the rest is in recompute.
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"
#include "trainer/model/edge.h"
#include "trainer/model/pass_shape.h"
#include "trainer/model/spec.h"

namespace megalith {

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

}  // namespace megalith
