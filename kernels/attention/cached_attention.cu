// A block computes one head of a row. Its warps divide the keys. First each computes the scores of its keys, which stay
// in shared memory; then comes the softmax; then each computes its keys' share of the output. The shares are added in
// the order of the warps.
#include <cmath>

#include "kernels/attention/cached_attention.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 128, warps = threads / warp_size;

// The sizes of a cache.
struct CacheSizes {
  int64_t slots, K, T, D, H;  // H: heads of the rows
  __device__ int64_t width() const { return (H + 2 * K) * D; }
  __device__ bool holds(int64_t slot, int64_t position, int64_t longest) const {
    return 0 <= slot && slot < slots && 0 <= position && position < longest;
  }
  __device__ int64_t begin(int64_t kind, int64_t slot, int64_t h) const {
    return ((kind * slots + slot) * K + h) * T * D;
  }
};
CacheSizes sizes_of(const Tensor& cache, const Tensor& qkv) {
  const Shape& shape = cache.shape();
  return {shape[0] / 2, shape[1], shape[2], shape[3], qkv.cols() / shape[3] - 2 * shape[1]};
}

template <class E>
__global__ void __launch_bounds__(threads) keep_kernel(E* cache, const E* qkv, const int32_t* rows, CacheSizes sizes) {
  const int64_t n = blockIdx.x, A = sizes.K * sizes.D, slot = rows[2 * n], position = rows[2 * n + 1];
  if (!sizes.holds(slot, position, sizes.T)) return;
  for (int64_t i = threadIdx.x; i < 2 * A; i += threads)
    cache[sizes.begin(i / A, slot, i % A / sizes.D) + position * sizes.D + i % sizes.D] =
        qkv[n * sizes.width() + sizes.H * sizes.D + i];
}

// Returns the block's sum or maximum, the same bits in every thread.
template <class F>
__device__ float over_block(float v, float* scratch, F join) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) v = join(v, shuffle_xor(v, bits));
  sync_threads();
  if (lane_index() == 0) scratch[warp_index()] = v;
  sync_threads();
  v = scratch[0];
  for (int w = 1; w < warps; w++) v = join(v, scratch[w]);
  return v;
}

template <class E>
__global__ void __launch_bounds__(threads) attend_kernel(E* out, const E* qkv, const E* cache, const int32_t* rows,
                                                         CacheSizes sizes, int64_t longest, float scale) {
  const int64_t n = blockIdx.x, h = blockIdx.y, D = sizes.D, A = sizes.H * D;
  const int64_t slot = rows[2 * n], position = rows[2 * n + 1];
  E* to_row = out + n * A + h * D;
  if (!sizes.holds(slot, position, longest)) {
    for (int64_t c = threadIdx.x; c < D; c += threads) to_row[c] = to<E>(NAN);
    return;
  }
  __shared__ float scratch[warps];
  float *parts = shared_memory<float>(0), *scores = parts + warps * D;
  const int64_t shared = h / (sizes.H / sizes.K);
  const E* q = qkv + n * sizes.width() + h * D;
  const E *k = cache + sizes.begin(0, slot, shared), *v = cache + sizes.begin(1, slot, shared);
  float top = -INFINITY;
  for (int64_t j = warp_index(); j <= position; j += warps) {
    float sum = 0;
    for (int64_t c = lane_index(); c < D; c += warp_size) sum = fmaf(to_float(q[c]), to_float(k[j * D + c]), sum);
    const float score = scale * warp_sum(sum);
    if (lane_index() == 0) scores[j] = score;
    top = fmaxf(top, score);
  }
  top = over_block(top, scratch, [](float a, float b) { return fmaxf(a, b); });
  float total = 0;
  for (int64_t j = threadIdx.x; j <= position; j += threads) {
    const float weight = expf(scores[j] - top);
    scores[j] = weight;
    total += weight;
  }
  total = over_block(total, scratch, [](float a, float b) { return a + b; });
  for (int64_t c = lane_index(); c < D; c += warp_size) {
    float sum = 0;
    for (int64_t j = warp_index(); j <= position; j += warps) sum = fmaf(scores[j], to_float(v[j * D + c]), sum);
    parts[warp_index() * D + c] = sum;
  }
  sync_threads();
  for (int64_t c = threadIdx.x; c < D; c += threads) {
    float sum = parts[c];
    for (int w = 1; w < warps; w++) sum += parts[w * D + c];
    to_row[c] = to<E>(sum / total);
  }
}
}  // namespace

void run(Queue queue, const KeepKeysValues& op) {
  with_compute_type(op.cache.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {op.name, blocks_for(op.qkv.rows(), 1), threads}, keep_kernel<E>, op.cache.data<E>(),
           op.qkv.data<E>(), op.rows.data<int32_t>(), sizes_of(op.cache, op.qkv));
  });
}

void run(Queue queue, const CachedAttention& op) {
  const CacheSizes sizes = sizes_of(op.cache, op.qkv);
  CHECK(sizes.H < 65536, "cached_attention of {} heads; a launch takes 65535", sizes.H);
  const int64_t shared = (warps * sizes.D + op.longest) * static_cast<int64_t>(sizeof(float));
  CHECK(
      shared + 1024 <= queue.chip.shared_memory,
      "cached_attention over {} positions: their scores take {} bytes of shared memory, but a block of this GPU has {}",
      op.longest, shared, queue.chip.shared_memory);
  with_compute_type(op.cache.dtype(), [&](auto tag) {
    using E = decltype(tag);
    const dim3 grid(blocks_for(op.qkv.rows(), 1), static_cast<unsigned>(sizes.H), 1);
    launch(queue, {op.name, grid, threads, static_cast<int>(shared)}, attend_kernel<E>, op.out.data<E>(),
           op.qkv.data<E>(), op.cache.data<E>(), op.rows.data<int32_t>(), sizes, op.longest,
           1.0f / std::sqrt(static_cast<float>(sizes.D)));
  });
}

}  // namespace megalith::cuda
