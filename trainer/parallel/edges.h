// The edges of a residual branch under each kind of parallelism inside a layer.
#pragma once

#include "trainer/model/edge.h"

namespace megalith {

// One rank holds the whole layer: entering and leaving change nothing.
class WholeEdge : public Edge {
 public:
  Tensor enter(Stream&, Arena&, Tensor x) const override { return x; }
  Tensor leave(Stream&, Arena&, Tensor h) const override { return h; }
  Tensor enter_backward(Stream&, Arena&, Tensor dx) const override { return dx; }
  Tensor leave_backward(Stream&, Arena&, Tensor dh) const override { return dh; }
};

}  // namespace megalith
