#include <cmath>
#include <vector>

#include "kernels/loops_cpu.h"
#include "kernels/ops_cpu.h"

namespace megalith::cpu {

namespace {
constexpr float epsilon = 1e-5f;
// dw and db are summed over blocks of so many rows, then over the blocks in order: the same for any number of threads.
constexpr int64_t block_rows = 32;

template <class T>
void forward_row(T* y, float* stat, const T* x, const T* w, const T* b, int64_t C) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < C; c++) sum += get(x[c]);
  const float mean = sum / static_cast<float>(C);
  float square = 0;
#pragma omp simd reduction(+ : square)
  for (int64_t c = 0; c < C; c++) square += (get(x[c]) - mean) * (get(x[c]) - mean);
  const float rstd = 1.0f / std::sqrt(square / static_cast<float>(C) + epsilon);
#pragma omp simd
  for (int64_t c = 0; c < C; c++) put(y[c], (get(x[c]) - mean) * rstd * get(w[c]) + get(b[c]));
  stat[0] = mean;
  stat[1] = rstd;
}

template <class T>
void backward_row(T* dx, float* dw, float* db, const T* dy, const T* x, const float* stat, const T* w, int64_t C) {
  const float mean = stat[0], rstd = stat[1];
  float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t c = 0; c < C; c++) {
    const float d = get(dy[c]), xhat = (get(x[c]) - mean) * rstd, g = d * get(w[c]);
    sum += g;
    dot += g * xhat;
    dw[c] += d * xhat;
    db[c] += d;
  }
  sum /= static_cast<float>(C);
  dot /= static_cast<float>(C);
#pragma omp simd
  for (int64_t c = 0; c < C; c++) {
    const float xhat = (get(x[c]) - mean) * rstd;
    put(dx[c], get(dx[c]) + rstd * (get(dy[c]) * get(w[c]) - sum - xhat * dot));
  }
}
}  // namespace

void layernorm_forward(Tensor y_, Tensor stat_, Tensor x_, Tensor w_, Tensor b_) {
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = y_.data<T>();
    float* stat = stat_.data<float>();
    const T *x = x_.data<T>(), *w = w_.data<T>(), *b = b_.data<T>();
    const int64_t C = x_.cols();
    parallel_for(x_.rows(), 2 * C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) forward_row(y + n * C, stat + 2 * n, x + n * C, w, b, C);
    });
  });
}

void layernorm_backward(Tensor dx_, Tensor dw_, Tensor db_, Tensor dy_, Tensor x_, Tensor stat_, Tensor w_) {
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dx = dx_.data<T>();
    float *dw = dw_.data<float>(), *db = db_.data<float>();
    const T *dy = dy_.data<T>(), *x = x_.data<T>(), *w = w_.data<T>();
    const float* stat = stat_.data<float>();
    const int64_t N = x_.rows(), C = x_.cols(), blocks = (N + block_rows - 1) / block_rows;
    std::vector<float> partial(static_cast<size_t>(blocks * 2 * C));  // per block: dw, then db
    float* sums = partial.data();
    parallel_for(blocks, 4 * C * block_rows, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; block++)
        for (int64_t n = block * block_rows; n < N && n < (block + 1) * block_rows; n++)
          backward_row(dx + n * C, sums + block * 2 * C, sums + block * 2 * C + C, dy + n * C, x + n * C, stat + 2 * n,
                       w, C);
    });
    parallel_for(C, 2 * blocks, [=](int64_t begin, int64_t end) {
      for (int64_t block = 0; block < blocks; block++) {
        const float* from = sums + block * 2 * C;
#pragma omp simd
        for (int64_t c = begin; c < end; c++) {
          dw[c] += from[c];
          db[c] += from[C + c];
        }
      }
    });
  });
}

}  // namespace megalith::cpu
