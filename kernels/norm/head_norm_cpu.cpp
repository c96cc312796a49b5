#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/loops/loops_cpu.h"
#include "kernels/norm/head_norm.h"

namespace megalith::cpu {

namespace {
// dw is summed over blocks of this many rows, then over blocks in order: the same for any number of threads.
constexpr int64_t rows_together = 32;
}  // namespace

void head_norm_forward(Tensor y_, Tensor rstd_, Tensor x_, Tensor q_w_, Tensor k_w_, const AttentionDims& dims,
                       float epsilon) {
  const int64_t D = dims.D, H = dims.H, heads = H + dims.kv(), width = dims.qkv_width();
  with_compute_type(x_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* all_y = y_.data<E>();
    float* rstds = rstd_.data<float>();
    const E *all_x = x_.data<E>(), *q_w = q_w_.data<E>(), *k_w = k_w_.data<E>();
    parallel_for(x_.rows(), 2 * width, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        for (int64_t h = 0; h < heads; h++) {
          const E *x = all_x + n * width + h * D, *w = h < H ? q_w : k_w;
          E* y = all_y + n * width + h * D;
          float square = 0;
#pragma omp simd reduction(+ : square)
          for (int64_t c = 0; c < D; c++) square += get(x[c]) * get(x[c]);
          const float rstd = 1.0f / std::sqrt(square / static_cast<float>(D) + epsilon);
#pragma omp simd
          for (int64_t c = 0; c < D; c++) put(y[c], get(x[c]) * rstd * get(w[c]));
          rstds[n * heads + h] = rstd;
        }
        std::copy(all_x + n * width + heads * D, all_x + (n + 1) * width, all_y + n * width + heads * D);
      }
    });
  });
}

void head_norm_backward(Tensor d_, Tensor dq_w_, Tensor dk_w_, Tensor x_, Tensor rstd_, Tensor q_w_, Tensor k_w_,
                        const AttentionDims& dims) {
  const int64_t N = x_.rows(), D = dims.D, H = dims.H, heads = H + dims.kv(), width = dims.qkv_width();
  const int64_t blocks = (N + rows_together - 1) / rows_together;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * D));  // per block: dq_w, then dk_w
  float* sums = partial.data();
  with_compute_type(x_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* all_d = d_.data<E>();
    const float* rstds = rstd_.data<float>();
    const E *all_x = x_.data<E>(), *q_w = q_w_.data<E>(), *k_w = k_w_.data<E>();
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
  add_to(dq_w_.data_or_null<float>(), 0);
  add_to(dk_w_.data_or_null<float>(), 1);
}

}  // namespace megalith::cpu
