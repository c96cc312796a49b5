#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/column_sums_cpu.h"
#include "kernels/dropout_cpu.h"
#include "kernels/loops_cpu.h"
#include "kernels/ops_cpu.h"

namespace megalith::cpu {

namespace {
constexpr float epsilon = 1e-5f;
// dw and db are summed over blocks of so many rows, then over the blocks in order: the same for any number of threads.
constexpr int64_t block_rows = 32;

// What sums over a row is a function of its own: inlined in two places, it might sum in two orders.
template <class T>
[[gnu::noipa]] void forward_row(T* y, float* stat, const T* x, const T* w, const T* b, int64_t C) {
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

struct RowMeans {
  float gradient, dot;  // of g and of g * xhat
};
template <class T>
[[gnu::noipa]] RowMeans add_row(float* dw, float* db, const T* dy, const T* x, const float* stat, const T* w,
                                int64_t C) {
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
  return {sum / static_cast<float>(C), dot / static_cast<float>(C)};
}

// dx of columns [first, first + count), also left in v.
template <class T>
void gradient_run(float* v, T* dx, const T* dy, const T* x, const float* stat, const T* w, const RowMeans& means,
                  int64_t first, int64_t count) {
  const float mean = stat[0], rstd = stat[1];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const int64_t c = first + i;
    const float xhat = (get(x[c]) - mean) * rstd;
    v[i] = get(dx[c]) + rstd * (get(dy[c]) * get(w[c]) - means.gradient - xhat * means.dot);
    put(dx[c], v[i]);
  }
}

// Rows in bundles, which threads share out. Of each bundle and each row there, in order: the gradient; then
// after(bundle, row, v, first, count) for every run of at most masked_run columns of it.
template <class T, class After>
void backward(const Tensor& dx_, const Tensor& dw_, const Tensor& db_, const Tensor& dy_, const Tensor& x_,
              const Tensor& stat_, const Tensor& w_, int64_t bundle_rows, After&& after) {
  T* dx = dx_.data<T>();
  float *dw = dw_.data<float>(), *db = db_.data<float>();
  const T *dy = dy_.data<T>(), *x = x_.data<T>(), *w = w_.data<T>();
  const float* stat = stat_.data<float>();
  const int64_t N = x_.rows(), C = x_.cols(), blocks = (N + block_rows - 1) / block_rows;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * C));  // per block: dw, then db
  float* sums = partial.data();
  parallel_for((N + bundle_rows - 1) / bundle_rows, 4 * C * bundle_rows, [=](int64_t begin, int64_t end) {
    float v[masked_run];
    for (int64_t bundle = begin; bundle < end; bundle++)
      for (int64_t n = bundle * bundle_rows; n < N && n < (bundle + 1) * bundle_rows; n++) {
        float* to = sums + n / block_rows * 2 * C;
        const RowMeans means = add_row(to, to + C, dy + n * C, x + n * C, stat + 2 * n, w, C);
        for (int64_t c = 0; c < C; c += masked_run) {
          const int64_t count = std::min(masked_run, C - c);
          gradient_run(v, dx + n * C, dy + n * C, x + n * C, stat + 2 * n, w, means, c, count);
          after(bundle, n, v, c, count);
        }
      }
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

void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w) {
  with_compute_type(x.dtype(),
                    [&](auto tag) { backward<decltype(tag)>(dx, dw, db, dy, x, stat, w, block_rows, [](auto...) {}); });
}

void residual_layernorm_forward(Tensor y_, Tensor ln_, Tensor stat_, Tensor x_, Tensor h_, Tensor h_b_, Tensor w_,
                                Tensor b_, const Dropout& d) {
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T *y = y_.data<T>(), *ln = ln_.data<T>();
    float* stat = stat_.data<float>();
    const T *x = x_.data<T>(), *h = h_.data<T>(), *h_b = h_b_.data<T>(), *w = w_.data<T>(), *b = b_.data<T>();
    const int64_t C = x_.cols();
    const ResidualRow<T> end_branch(h_b, C, d);
    parallel_for(x_.rows(), end_branch.work() + 2 * C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        end_branch(y + n * C, x + n * C, h + n * C, n);
        forward_row(ln + n * C, stat + 2 * n, y + n * C, w, b, C);
      }
    });
  });
}

void residual_layernorm_backward(Tensor dx, Tensor dh_, Tensor dh_b_, Tensor dw, Tensor db, Tensor dln, Tensor y,
                                 Tensor stat, Tensor w, const Dropout& d) {
  with_compute_type(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dh = dh_.raw() != dx.raw() ? dh_.data<T>() : nullptr;
    float* dh_b = dh_b_.data<float>();
    const int64_t N = y.rows(), C = y.cols(), bundles = (N + column_sum_rows - 1) / column_sum_rows;
    std::vector<float> partial(static_cast<size_t>(bundles * C));
    float* sums = partial.data();
    const DropoutMask mask(d);
    const bool active = d.active();
    const auto first_row = static_cast<uint64_t>(d.first_row);
    backward<T>(dx, dw, db, dln, y, stat, w, column_sum_rows,
                [=](int64_t bundle, int64_t n, float* v, int64_t first, int64_t count) {
                  if (active) {
                    float factors[masked_run];
                    mask.draw(factors, first_row + static_cast<uint64_t>(n), 0, first, count);
#pragma omp simd
                    for (int64_t i = 0; i < count; i++) v[i] *= factors[i];
                  }
                  float* sum = sums + bundle * C + first;
#pragma omp simd
                  for (int64_t i = 0; i < count; i++) sum[i] += v[i];
                  if (!dh) return;
                  T* to = dh + n * C + first;
#pragma omp simd
                  for (int64_t i = 0; i < count; i++) put(to[i], v[i]);
                });
    for (int64_t bundle = 0; bundle < bundles; bundle++)
#pragma omp simd
      for (int64_t c = 0; c < C; c++) dh_b[c] += sums[bundle * C + c];
  });
}

}  // namespace megalith::cpu
