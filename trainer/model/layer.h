// What every layer of the model gets besides tensors.
//
// A layer is an object. It declares its parameters in its constructor and does not hold them: each call gets them as
// the tensors of its unit (UnitTensors). Its struct Saved has what its backward pass needs from its forward pass;
// allocate() gives it memory. Its backward pass has two halves, the gradient of its input and those of its weights; the
// second may come at any time after the first. recompute() computes what follows from the other saved tensors.
#pragma once

#include <algorithm>

#include "kernels/elementwise/dropout.h"
#include "kernels/linear/fp8.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"
#include "trainer/model/edge.h"
#include "trainer/model/pass_shape.h"
#include "trainer/model/spec.h"

namespace megalith {

// For products in 8 bits (kernels/linear/fp8.h), (1) f32 each, or empty: the largest magnitude of the filled rows of a
// tensor, of this part alone until it is cast, and 1 / scale from then on.
struct Scale {
  Tensor amax{}, unscale{};
};
// Those of the inputs of a branch's two products or, in the backward pass, of the gradients of their outputs.
struct Scales {
  Scale first{}, second{};
};

struct Context {
  Stream& s;
  Arena& scratch;
  const Edge& edge;
  const PassShape& pass;
  Dropout dropout{};           // probability, seed, step and first row of the residual; each use sets the site
  double adapter_dropout = 0;  // its probability; 0 outside of training
  bool fp8 = false;            // linear layers compute in 8 bits (kernels/linear/fp8.h)
  int64_t filled_rows = 0;     // with fp8: rows of the branch that are not of masked sequences, which are the last
  Tensor starts{};  // (B, T) i32: where the document of each row begins (attention.h, embedding.h); empty: no document
                    // mask

  Dropout dropout_at(int32_t site) const {
    Dropout d = dropout;
    d.site = site;
    return d;
  }
  // Returns what an op needs to find the largest magnitude of what it writes: `rows` rows of the branch, from first_row
  // on.
  Largest largest(const Scale& scale, int64_t first_row, int64_t rows) const {
    return fp8 ? Largest{scale.amax, std::clamp<int64_t>(filled_rows - first_row, 0, rows)} : Largest{};
  }
  // Finds it in rows that are written, for ops that do not.
  void measure(const Scale& scale, int64_t first_row, Tensor rows) const {
    if (!fp8) return;
    const Largest of = largest(scale, first_row, rows.rows());
    launch(s, LargestMagnitude{.amax = of.amax, .x = rows.rows(0, of.rows)});
  }
  // Returns the context for the rows of the pass from this one on.
  Context from_row(int64_t row) const {
    Context c = *this;
    c.dropout.first_row += row;
    return c;
  }
};

}  // namespace megalith
