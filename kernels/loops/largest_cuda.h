// The largest magnitude of a tensor that a kernel reads or writes, in two launches: each block of an op's kernel writes
// its own to the workspace, then raise_largest takes the largest of them.
#pragma once

#include <bit>

#include "kernels/loops/device_cuda.h"
#include "kernels/tensor/largest.h"

namespace megalith::cuda {

// Magnitudes are compared by their bits, among which a NaN is larger than infinity.
__device__ __forceinline__ unsigned magnitude(float v) { return std::bit_cast<unsigned>(v) & 0x7fffffffu; }

// Where the blocks of a kernel write their largest magnitudes. The host makes it.
struct LargestOfBlocks {
  unsigned* of_block;  // one for each block; null: not needed
  int64_t rows;        // that count

  LargestOfBlocks(Queue queue, const Largest& largest, int64_t blocks)
      : of_block(largest.amax.empty() ? nullptr : static_cast<unsigned*>(queue.workspace)), rows(largest.rows) {
    CHECK(of_block == nullptr || blocks * static_cast<int64_t>(sizeof(unsigned)) <= workspace_bytes,
          "the largest magnitudes of {} blocks do not fit into the workspace of {} bytes", blocks, workspace_bytes);
  }
};

// Host: calls f(finds) with a constant, for kernels that are bound by instructions: whether the op finds its largest.
template <class F>
void with_finding(const Largest& largest, F&& f) {
  if (largest.amax.empty()) return f(std::false_type{});
  f(std::true_type{});
}

template <class T, int n>
__device__ __forceinline__ void take_larger(unsigned& largest, const Vector<T, n>& v) {
  for (int k = 0; k < n; k++) {
    const unsigned here = magnitude(to_float(v[k]));
    largest = here > largest ? here : largest;
  }
}
// Takes the first `counted` elements.
template <class T, int n>
__device__ __forceinline__ void take_larger(unsigned& largest, const Vector<T, n>& v, int64_t counted) {
  if (counted >= n) return take_larger(largest, v);
  for (int k = 0; k < n && k < counted; k++) take_larger(largest, Vector<T, 1>{v[k]});
}

// Returns the largest of a block of `threads` threads, in thread 0. A kernel calls it once.
template <int threads>
__device__ inline unsigned largest_of_block(unsigned v) {
  __shared__ unsigned of_warp[threads / warp_size];
  for (int bits = warp_size / 2; bits > 0; bits /= 2) {
    const unsigned other = shuffle_xor(v, bits);
    v = other > v ? other : v;
  }
  if (lane_index() == 0) of_warp[warp_index()] = v;
  sync_threads();
  if (threadIdx.x == 0)
    for (int i = 1; i < threads / warp_size; i++) v = of_warp[i] > v ? of_warp[i] : v;
  return v;
}

template <int threads>
__device__ inline void store_largest(const LargestOfBlocks& to, unsigned largest) {
  if (!to.of_block) return;
  largest = largest_of_block<threads>(largest);
  if (threadIdx.x == 0) to.of_block[blockIdx.x] = largest;
}

namespace largest_of_blocks {
constexpr int threads = 1024;
}
template <class = void>
__global__ void __launch_bounds__(largest_of_blocks::threads)
    raise_largest_kernel(float* amax, const unsigned* of_block, int64_t blocks) {
  using largest_of_blocks::threads;
  unsigned largest = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < blocks; i += threads) largest = of_block[i] > largest ? of_block[i] : largest;
  constexpr unsigned infinity = 0x7f800000u;
  largest = largest_of_block<threads>(largest);
  if (threadIdx.x != 0) return;
  const float found = std::bit_cast<float>(largest < infinity ? largest : infinity);
  if (found > *amax) *amax = found;
}

inline void raise_largest(Queue queue, const char* name, const Tensor& amax, int64_t blocks) {
  if (amax.empty()) return;
  launch(queue, {name, 1, largest_of_blocks::threads}, raise_largest_kernel<>, amax.data<float>(),
         static_cast<const unsigned*>(queue.workspace), blocks);
}

}  // namespace megalith::cuda
