// The sigmoid of activations on a GPU.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

// Returns 1 / (1 + exp(-x)). The rounding to a 16-bit T hides the errors of the fast functions.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 1.0f / (1.0f + expf(-x));
  } else {
    return fast_reciprocal(1.0f + fast_exp2(-log2_e * x));
  }
}

}  // namespace megalith::cuda
