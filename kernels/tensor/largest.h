// The largest magnitude of what an op writes, which the op finds on its way, for products in 8 bits
// (kernels/linear/fp8.h).
#pragma once

#include "kernels/tensor/tensor.h"

namespace megalith {

struct Largest {
  Tensor amax{};  // (1) f32: becomes the largest |y| if that is larger, infinity if a y is infinite or NaN; empty: none
  int64_t rows = 0;  // y in the first rows count
};

}  // namespace megalith
