// The gradient of a bias: column sums. GEMMs are the library's (linear_cuda.cpp).
#include "kernels/linear/linear.h"
#include "kernels/loops/column_sums_cuda.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 128;

// partial[block.y][c] = the sum of column c over every gridDim.y-th row; a thread has n neighbouring columns.
template <class T, int n>
__global__ void __launch_bounds__(threads) partial_kernel(float* partial, const T* x, int64_t N, int64_t C) {
  const int64_t c = (int64_t{blockIdx.x} * threads + threadIdx.x) * n;
  if (c >= C) return;
  float sum[n] = {};
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < N; row += gridDim.y) {
    const Vector<T, n> v = load_once<n>(x + row * C + c);
    for (int i = 0; i < n; i++) sum[i] += to_float(v[i]);
  }
  for (int i = 0; i < n; i++) partial[int64_t{blockIdx.y} * C + c + i] = sum[i];
}
}  // namespace

void run(Queue queue, const LinearBackwardBias& op) {
  const int64_t N = op.dy.rows(), C = op.dy.cols();
  if (op.dy.numel() == 0) return;
  const unsigned rows = partial_blocks(N, C);
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<16 / sizeof(T)>(in_vectors({op.dy}), [&](auto n) {
      launch(queue, {op.name, dim3(blocks_for(C, threads * n), rows), threads}, partial_kernel<T, n>,
             static_cast<float*>(queue.workspace), op.dy.data<T>(), N, C);
    });
  });
  finish_column_sums(queue, op.name, {op.db.data<float>()}, 1, C, rows);
}

void finish_bias_gradient(Queue queue, Tensor db) {
  finish_column_sums(queue, "linear_backward_weight", {db.data<float>()}, 1, db.numel(), 1);
}

}  // namespace megalith::cuda
