// A loop over the elements of whole tensors: in vectors where they fit, and one by one at the end.
#pragma once

#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace element_loop {
constexpr int threads = 256;
}

// Calls use(width, i, load(width, i)) for all of [0, count), `width` neighbours from i on at a time: n, or 1 at the
// end. A thread loads its `steps` vectors before it uses the first, so that many loads are in flight. Launch with
// element_grid(count, n, steps) blocks of element_loop::threads.
template <int n, int steps, class Load, class Use>
__device__ void for_elements(int64_t count, Load&& load, Use&& use) {
  using element_loop::threads;
  constexpr std::integral_constant<int, n> width;
  constexpr std::integral_constant<int, 1> one;
  const int64_t whole = count / n, first = int64_t{blockIdx.x} * threads * steps + threadIdx.x;
  decltype(load(width, int64_t{})) loaded[steps];
#pragma unroll
  for (int step = 0; step < steps; step++)
    if (const int64_t i = first + step * threads; i < whole) loaded[step] = load(width, i * n);
#pragma unroll
  for (int step = 0; step < steps; step++)
    if (const int64_t i = first + step * threads; i < whole) use(width, i * n, loaded[step]);
  if constexpr (n > 1) {
    if (const int64_t i = whole * n + first; first < n && i < count) {
      auto last = load(one, i);
      use(one, i, last);
    }
  }
}

inline unsigned element_grid(int64_t count, int n, int steps) {
  return blocks_for(count / n + 1, element_loop::threads * steps);
}

}  // namespace megalith::cuda
