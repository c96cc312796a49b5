// How kernels are written here. A .cu file is compiled twice: by nvcc to device code, and by the C++ compiler for
// tests/simt, where every thread is a fiber on the CPU and every memory access is checked. A kernel has no #ifdef;
// <device_primitives.h> has functions with two implementations, found in kernels/nvcc or tests/simt by the include
// path:
//
//   launching    Launch{"name", grid, block, shared_bytes}, allow_shared_memory(), start(), for launch() below
//   qualifiers   __global__ __device__ __launch_bounds__(n) __shared__; threadIdx blockIdx blockDim gridDim, dim3
//   barriers     sync_threads(), sync_warp(mask)       every thread of the block, every lane of the mask, from one line
//                barrier_sync(id, threads), barrier_arrive(id, threads): a barrier from 1 to 15, which is complete
//                when that number of threads, in whole warps, has come to it from any line. barrier_sync waits for
//                this, and then sees what all of them did before; barrier_arrive does not wait (PTX ISA, bar.sync and
//                bar.arrive)
//   votes        ballot(p, mask), any(p, mask)
//   shuffles     shuffle(v, lane, mask), shuffle_xor(v, bits, mask); v of 4 or 8 bytes
//   memory       load<n>(p), store(p, v): n elements, n * sizeof(T) 1, 2, 4, 8 or a multiple of 16, p so aligned (to 16
//                at most); load_once, store_once: the same for what nobody reads again soon
//                shared_memory<T>(byte): the launch's shared memory from that byte on, a multiple of 16; its first byte
//                lies on a multiple of 1024
//   16 bits      to_float(v); to<T>(f), to nearest even; pack<T>(low, high): two bf16 or f16 in 32 bits, or two e4m3 or
//                e5m2 in 16
//   fast math    fast_exp2, fast_exp, fast_reciprocal: relative error 2^-21 or so; the first and the last give 0 for
//                results below 2^-126
//   matrices     load_matrix<n>(r, p), load_matrix_transposed<n>(r, p): ldmatrix .x1 .x2 .x4 of 8x8 16-bit tiles; p is
//                lane i's row of 16 bytes in shared memory
//                multiply_add<T>(d, a, b): d (16x8 f32) += a (16x16 T, rows) * b (16x8 T, columns), T bf16 or f16,
//                mma.sync's fragments
//   async copy   copy_async(shared, global, valid): 16 bytes, zeros when not valid; copy_async_commit();
//                copy_async_wait<n>(): all but the last n groups of this thread are there; others see them after a
//                barrier
//
//   between      release(flag, n), by one thread: what the block did before its last barrier is seen by a block that
//   blocks       awaits n, after its next barrier. await(flag, n), by one thread, gives the number released last, n or
//                more, once it is. A GPU starts blocks in any order, and those that wait keep others from starting; so
//                only blocks may be awaited that took a ticket earlier: they run. take_ticket(counter), by one thread:
//                0, 1, 2 and so on, of a counter that was 0 before the launch
//                add_to_memory(p, v): four floats are added to those at p, aligned to 16 bytes, of device memory, where
//                release and await say in which order blocks do (Hopper and later)
//
// A function that takes 16-bit values from memory, or whose results go there, is __forceinline__, or tests/simt does
// not see the access. Kernels may also call <cmath> functions in their f form (sqrtf, fmaf, ...) and our constexpr
// functions. A kernel has blocks of 32 to 1024 threads, a multiple of 32; warps of 32, in no assumed order; full masks
// where all lanes come; no float atomics in an order by chance; 64-bit indices into tensors; all shapes as arguments.
//
// The ops of the cuda world enqueue and return. A device cannot throw: an invalid token or target gives a row, or a
// loss, of NaN. Storage is f32, bf16 or f16, arithmetic f32; sums are in an order that depends on shapes only; accesses
// are 16 bytes wide if shape and alignment allow.
#pragma once

#include <device_primitives.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/stream/queue_cuda.h"
#include "kernels/tensor/tensor.h"

namespace megalith::cuda {

constexpr int warp_size = 32;
constexpr float log2_e = 1.4426950408889634f;
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline bool aligned(const void* p, uintptr_t bytes = 16) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// Host: launches `kernel` on the queue's stream; arguments convert. Beyond CUDA's default limit of 48 KiB shared memory
// must be requested, so a launch with any does. Error: CUDA refuses; names the request and the GPU's limit.
template <class... Parameters, class... Arguments>
void launch(Queue queue, const Launch& l, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (l.shared_bytes > 0) allow_shared_memory(l, kernel);
  start(queue, l, kernel, static_cast<Parameters>(arguments)...);
}

// Host: returns whether all of these can be accessed 16 bytes at a time, row by row. Empty tensors can.
inline bool in_vectors(std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (!aligned(t.raw()) || t.cols() * size_of(t.dtype()) % 16 != 0) return false;
  return true;
}

// Host: calls f(width) with a constant: n if `vectors`, else 1.
template <int n, class F>
void with_width(bool vectors, F&& f) {
  if (vectors) return f(std::integral_constant<int, n>{});
  f(std::integral_constant<int, 1>{});
}

// Host: returns how many blocks of `each` items hold n.
inline unsigned blocks_for(int64_t n, int64_t each) {
  const int64_t blocks = ceil_div(n, each);
  CHECK(blocks > 0 && blocks < int64_t{1} << 31, "{} items in blocks of {} do not fit a CUDA grid", n, each);
  return static_cast<unsigned>(blocks);
}

// Converts one element; 16-bit types go through f32.
template <class To, class From>
__device__ __forceinline__ To convert(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else {
    return to<To>(to_float(v));
  }
}

// Loads n elements starting at p[i], or returns zeros if p is null.
template <int n, class T>
__device__ __forceinline__ Vector<T, n> load_or_zeros(const T* p, int64_t i) {
  if (p) return load<n>(p + i);
  Vector<T, n> zeros;
  for (int k = 0; k < n; k++) zeros[k] = to<T>(0.0f);
  return zeros;
}

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / warp_size; }

// Returns the sum over each group of `lanes` lanes of a warp, the same bits in every lane of the group.
template <int lanes = warp_size>
__device__ inline float warp_sum(float v) {
  for (int bits = lanes / 2; bits > 0; bits /= 2) v += shuffle_xor(v, bits);
  return v;
}
__device__ inline float warp_max(float v) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) v = fmaxf(v, shuffle_xor(v, bits));
  return v;
}

// Returns the sum over a block of `threads` threads, in thread 0. A kernel calls it once.
template <int threads>
__device__ double block_sum(double v) {
  __shared__ double of_warps[threads / warp_size];
  for (int bits = warp_size / 2; bits > 0; bits /= 2) v += shuffle_xor(v, bits);
  if (lane_index() == 0) of_warps[warp_index()] = v;
  sync_threads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (const double of_warp : of_warps) sum += of_warp;
  return sum;
}

}  // namespace megalith::cuda
