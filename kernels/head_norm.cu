// A warp takes a head of a row, or several in turn, one element a lane at a time: what it moves is a small part of what
// attention does.
#include <cmath>

#include "kernels/column_sums_cuda.h"
#include "kernels/head_norm.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, warps = threads / warp_size;

struct Heads {
  int64_t N, H, heads, D, width;  // of q; of q and k together
};
Heads heads_of(const Tensor& x, const AttentionDims& d) { return {x.rows(), d.H, d.H + d.kv(), d.D, d.qkv_width()}; }

template <class E>
__global__ void __launch_bounds__(threads)
    forward_kernel(E* y, float* rstds, const E* x, const E* q_w, const E* k_w, Heads s, float epsilon) {
  const int64_t all = s.width / s.D, unit = int64_t{blockIdx.x} * warps + warp_index();
  if (unit >= s.N * all) return;
  const int64_t n = unit / all, h = unit % all, begin = n * s.width + h * s.D;
  if (h >= s.heads) {  // v
    for (int64_t c = lane_index(); c < s.D; c += warp_size) y[begin + c] = x[begin + c];
    return;
  }
  float square = 0;
  for (int64_t c = lane_index(); c < s.D; c += warp_size) square += to_float(x[begin + c]) * to_float(x[begin + c]);
  const float rstd = 1.0f / sqrtf(warp_sum(square) / static_cast<float>(s.D) + epsilon);
  const E* w = h < s.H ? q_w : k_w;
  for (int64_t c = lane_index(); c < s.D; c += warp_size)
    y[begin + c] = to<E>(to_float(x[begin + c]) * rstd * to_float(w[c]));
  if (lane_index() == 0) rstds[n * s.heads + h] = rstd;
}

// A block takes rows in turn, a warp heads of them in turn. Each warp sums the gradients of the weights in its part of
// shared memory, (warps, 2, D), and the block writes their sums in the order of the warps.
template <class E>
__global__ void __launch_bounds__(threads)
    backward_kernel(E* d, float* partial, const E* x, const float* rstds, const E* q_w, const E* k_w, Heads s) {
  float *all = shared_memory<float>(), *mine = all + warp_index() * 2 * s.D;
  for (int64_t c = lane_index(); c < s.D; c += warp_size) mine[c] = mine[s.D + c] = 0;
  for (int64_t n = blockIdx.x; n < s.N; n += gridDim.x)
    for (int64_t h = warp_index(); h < s.heads; h += warps) {
      const int64_t begin = n * s.width + h * s.D;
      const E* w = h < s.H ? q_w : k_w;
      float *dw = mine + (h < s.H ? 0 : s.D), dot = 0;
      const float rstd = rstds[n * s.heads + h];
      for (int64_t c = lane_index(); c < s.D; c += warp_size) {
        const float xhat = to_float(x[begin + c]) * rstd, dy = to_float(d[begin + c]);
        dot += dy * to_float(w[c]) * xhat;
        dw[c] += dy * xhat;
      }
      dot = warp_sum(dot) / static_cast<float>(s.D);
      for (int64_t c = lane_index(); c < s.D; c += warp_size)
        d[begin + c] = to<E>(rstd * (to_float(d[begin + c]) * to_float(w[c]) - to_float(x[begin + c]) * rstd * dot));
    }
  sync_threads();
  for (int64_t c = threadIdx.x; c < 2 * s.D; c += threads) {
    float sum = 0;
    for (int warp = 0; warp < warps; warp++) sum += all[warp * 2 * s.D + c];
    partial[blockIdx.x * 2 * s.D + c] = sum;
  }
}
}  // namespace

void head_norm_forward(Queue queue, Tensor y, Tensor rstd, Tensor x, Tensor q_w, Tensor k_w, const AttentionDims& dims,
                       float epsilon) {
  const Heads s = heads_of(x, dims);
  if (s.N == 0) return;
  with_compute_type(x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {"head_norm_forward", blocks_for(s.N * (s.width / s.D), warps), threads}, forward_kernel<E>,
           y.data<E>(), rstd.data<float>(), x.data<E>(), q_w.data<E>(), k_w.data<E>(), s, epsilon);
  });
}

void head_norm_backward(Queue queue, Tensor d, Tensor dq_w, Tensor dk_w, Tensor x, Tensor rstd, Tensor q_w, Tensor k_w,
                        const AttentionDims& dims) {
  const char* name = "head_norm_backward";
  const Heads s = heads_of(x, dims);
  if (s.N == 0) return;
  const unsigned blocks = partial_blocks(s.N, 2 * s.D);
  with_compute_type(x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {name, blocks, threads, warps * 2 * s.D * static_cast<int64_t>(sizeof(float))}, backward_kernel<E>,
           d.data<E>(), static_cast<float*>(queue.workspace), x.data<E>(), rstd.data<float>(), q_w.data<E>(),
           k_w.data<E>(), s);
  });
  finish_column_sums(queue, name, {dq_w.data_or_null<float>(), dk_w.data_or_null<float>()}, 2, s.D, blocks);
}

}  // namespace megalith::cuda
