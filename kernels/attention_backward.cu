#include "kernels/attention.h"
#include "kernels/attention_backward_cuda.h"
#include "kernels/attention_warp_tiles.h"

namespace megalith::cuda {

namespace {
using namespace attention;
constexpr int warps = 8, threads = warps * warp_size;

// delta of (b, t, h), one to a warp.
template <class E>
__global__ void __launch_bounds__(threads)
    delta_kernel(float* delta, const E* dout, const E* out, int64_t B, int64_t T, int64_t H, int64_t D) {
  const int64_t i = int64_t{blockIdx.x} * warps + warp_index();
  if (i >= B * T * H) return;
  float dot = 0;
  for (int64_t c = lane_index(); c < D; c += warp_size)
    dot = fmaf(to_float(out[i * D + c]), to_float(dout[i * D + c]), dot);
  dot = warp_sum(dot);
  const int64_t n = i / H, h = i % H;
  if (lane_index() == 0) delta[(n / T * H + h) * T + n % T] = dot;
}
}  // namespace

void attention_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        Tensor starts, const AttentionDims& dims, const Dropout& d) {
  with_compute_type(qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {"attention_backward", blocks_for(dims.B * dims.T * dims.H, warps), threads}, delta_kernel<E>,
           delta.data<float>(), dout.data<E>(), out.data<E>(), dims.B, dims.T, dims.H, dims.D);
  });
  if (!fits_tiles(dims, {dqkv, dout, qkv})) return plain_backward(queue, dqkv, delta, dout, lse, qkv, starts, dims, d);
  if (queue.chip.generation == 9) return hopper_backward(queue, dqkv, delta, dout, lse, qkv, starts, dims, d);
  launch_backward<WarpTiles>(queue, dqkv, delta, dout, lse, qkv, starts, dims, d);
}

}  // namespace megalith::cuda
