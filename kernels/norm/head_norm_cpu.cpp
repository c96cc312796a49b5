#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/loops/loops_cpu.h"
#include "kernels/norm/head_norm.h"

namespace megalith::cpu {

namespace {
// dw is summed over blocks of this many rows, then over blocks in order, so the number of threads does not matter.
constexpr int64_t rows_together = 32;
}  // namespace

void run(Queue&, const HeadNormForward& op) {
  const int64_t D = op.dims.D, H = op.dims.H, heads = H + op.dims.kv(), width = op.dims.qkv_width();
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* all_y = op.y.data<E>();
    float* rstds = op.rstd.data<float>();
    const E *all_x = op.x.data<E>(), *q_w = op.q_w.data<E>(), *k_w = op.k_w.data<E>();
    parallel_for(op.x.rows(), 2 * width, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        for (int64_t h = 0; h < heads; h++) {
          const E *x = all_x + n * width + h * D, *w = h < H ? q_w : k_w;
          E* y = all_y + n * width + h * D;
          float square = 0;
#pragma omp simd reduction(+ : square)
          for (int64_t c = 0; c < D; c++) square += get(x[c]) * get(x[c]);
          const float rstd = 1.0f / std::sqrt(square / static_cast<float>(D) + op.epsilon);
#pragma omp simd
          for (int64_t c = 0; c < D; c++) put(y[c], get(x[c]) * rstd * get(w[c]));
          rstds[n * heads + h] = rstd;
        }
        std::copy(all_x + n * width + heads * D, all_x + (n + 1) * width, all_y + n * width + heads * D);
      }
    });
  });
}

void run(Queue&, const HeadNormBackward& op) {
  const int64_t N = op.x.rows(), D = op.dims.D, H = op.dims.H, heads = H + op.dims.kv(), width = op.dims.qkv_width();
  const int64_t blocks = (N + rows_together - 1) / rows_together;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * D));  // per block: dq_w, then dk_w
  float* sums = partial.data();
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* all_d = op.d.data<E>();
    const float* rstds = op.rstd.data<float>();
    const E *all_x = op.x.data<E>(), *q_w = op.q_w.data<E>(), *k_w = op.k_w.data<E>();
    parallel_for(blocks, 4 * width * rows_together, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin * rows_together; n < std::min(N, end * rows_together); n++)
        for (int64_t h = 0; h < heads; h++) {
          const E *x = all_x + n * width + h * D, *w = h < H ? q_w : k_w;
          E* d = all_d + n * width + h * D;
          float *dw = sums + (n / rows_together * 2 + (h < H ? 0 : 1)) * D, dot = 0;
          const float rstd = rstds[n * heads + h];
#pragma omp simd reduction(+ : dot)
          for (int64_t c = 0; c < D; c++) {
            const float xhat = get(x[c]) * rstd;
            dot += get(d[c]) * get(w[c]) * xhat;
            dw[c] += get(d[c]) * xhat;
          }
          dot /= static_cast<float>(D);
#pragma omp simd
          for (int64_t c = 0; c < D; c++) put(d[c], rstd * (get(d[c]) * get(w[c]) - get(x[c]) * rstd * dot));
        }
    });
  });
  const auto add_to = [=](float* dw, int64_t first) {
    for (int64_t block = 0; block < blocks && dw; block++)
#pragma omp simd
      for (int64_t c = 0; c < D; c++) dw[c] += sums[(2 * block + first) * D + c];
  };
  add_to(op.dq_w.data_or_null<float>(), 0);
  add_to(op.dk_w.data_or_null<float>(), 1);
}

}  // namespace megalith::cpu
