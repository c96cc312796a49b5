#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise/dropout_cpu.h"
#include "kernels/loops/column_sums_cpu.h"
#include "kernels/loops/loops_cpu.h"
#include "kernels/norm/layernorm.h"

namespace megalith::cpu {

namespace {
// dw and db are summed over blocks of this many rows, then over blocks in order: the same for any number of threads.
constexpr int64_t block_rows = 32;

// Returns the bias, or zeros in its place.
template <class T>
const T* bias_of(const Tensor& b, std::vector<T>& zeros, int64_t C) {
  if (!b.empty()) return b.data<T>();
  zeros.resize(static_cast<size_t>(C));
  return zeros.data();
}

// Never inlined: inlined in two places it might sum in two orders.
template <class T, class R>
[[gnu::noipa]] void forward_row(T* y, float* stat, const R* x, const T* w, const T* b, int64_t C,
                                const NormRule& rule) {
  const float epsilon = rule.epsilon;
  float sum = 0;
  if (rule.centered)
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
  float gradient, dot;  // sums of g and of g * xhat
};
template <class T, class R>
[[gnu::always_inline]] inline RowMeans add_row(float* dw, float* db, const T* dy, const R* x, const float* stat,
                                               const T* w, bool centered, int64_t C) {
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
  return {centered ? sum / static_cast<float>(C) : 0, dot / static_cast<float>(C)};
}

// Divides bundles of rows among threads. For every row it calls end_row(bundle, row, gradient), which must call
// gradient(first, count, use) for all columns: that writes dx, and use(c, v) gets dx before rounding.
template <class T, class R, class End>
void backward(const Tensor& dx_, const Tensor& dw_, const Tensor& db_, const Tensor& dy_, const Tensor& x_,
              const Tensor& stat_, const Tensor& w_, bool centered, int64_t bundle_rows, End&& end_row) {
  float *dw = dw_.data_or_null<float>(), *db = db_.data_or_null<float>();
  const T* w = w_.data<T>();
  const int64_t N = x_.rows(), C = x_.cols(), blocks = (N + block_rows - 1) / block_rows;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * C));  // per block: dw, then db
  float* sums = partial.data();
  R* all_dx = dx_.data<R>();
  const T* all_dy = dy_.data<T>();
  const R* all_x = x_.data<R>();
  const float* stats = stat_.data<float>();
  parallel_for((N + bundle_rows - 1) / bundle_rows, 4 * C * bundle_rows, [=](int64_t begin, int64_t end) {
    for (int64_t bundle = begin; bundle < end; bundle++)
      for (int64_t n = bundle * bundle_rows; n < N && n < (bundle + 1) * bundle_rows; n++) {
        float* to = sums + n / block_rows * 2 * C;
        R* dx = all_dx + n * C;
        const T* dy = all_dy + n * C;
        const R* x = all_x + n * C;
        const float mean = stats[2 * n], rstd = stats[2 * n + 1];
        const RowMeans means = add_row(to, to + C, dy, x, stats + 2 * n, w, centered, C);
        end_row(bundle, n, [=](int64_t first, int64_t count, auto&& use) {
#pragma omp simd
          for (int64_t c = first; c < first + count; c++) {
            const float xhat = (get(x[c]) - mean) * rstd;
            const float v = get(dx[c]) + rstd * (get(dy[c]) * get(w[c]) - means.gradient - xhat * means.dot);
            put(dx[c], v);
            use(c, v);
          }
        });
      }
  });
  parallel_for(C, 2 * blocks, [=](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < blocks; block++) {
      const float* from = sums + block * 2 * C;
      if (dw)
#pragma omp simd
        for (int64_t c = begin; c < end; c++) dw[c] += from[c];
      if (db)
#pragma omp simd
        for (int64_t c = begin; c < end; c++) db[c] += from[C + c];
    }
  });
}
}  // namespace

void layernorm_forward(Tensor y_, Tensor stat_, Tensor x_, Tensor w_, Tensor b_, const NormRule& rule) {
  with_residual_types(y_.dtype(), x_.dtype(), [&]<class T, class R>(T, R) {
    T* y = y_.data<T>();
    float* stat = stat_.data<float>();
    const int64_t C = x_.cols();
    std::vector<T> zeros;
    const R* x = x_.data<R>();
    const T *w = w_.data<T>(), *b = bias_of(b_, zeros, C);
    parallel_for(x_.rows(), 2 * C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) forward_row(y + n * C, stat + 2 * n, x + n * C, w, b, C, rule);
    });
  });
}

void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w,
                        const NormRule& rule) {
  with_residual_types(dy.dtype(), x.dtype(), [&]<class T, class R>(T, R) {
    const int64_t C = x.cols();
    backward<T, R>(dx, dw, db, dy, x, stat, w, rule.centered, block_rows,
                   [C](int64_t, int64_t, auto&& gradient) { gradient(0, C, [](int64_t, float) {}); });
  });
}

void residual_layernorm_forward(Tensor y, Tensor ln_, Tensor stat_, Tensor x, Tensor h, Tensor h_b, Tensor w_,
                                Tensor b_, const NormRule& rule, const Dropout& d) {
  with_residual_types(ln_.dtype(), x.dtype(), [&]<class T, class R>(T, R) {
    T* ln = ln_.data<T>();
    float* stat = stat_.data<float>();
    const int64_t C = x.cols();
    std::vector<T> zeros;
    const T *w = w_.data<T>(), *b = bias_of(b_, zeros, C);
    residual_rows<T, R>(y, x, h, h_b, d, 2 * C,
                        [=](int64_t n, const R* row) { forward_row(ln + n * C, stat + 2 * n, row, w, b, C, rule); });
  });
}

void residual_layernorm_backward(Tensor dx, Tensor dh_, Tensor dh_b_, Tensor dw, Tensor db, Tensor dln, Tensor y,
                                 Tensor stat, Tensor w, const NormRule& rule, const Dropout& d) {
  with_residual_types(dln.dtype(), y.dtype(), [&]<class T, class R>(T, R) {
    T* dh = dh_.raw() != dx.raw() ? dh_.data<T>() : nullptr;
    float* dh_b = dh_b_.data_or_null<float>();
    const int64_t N = y.rows(), C = y.cols(), bundles = (N + column_sum_rows - 1) / column_sum_rows;
    std::vector<float> partial(static_cast<size_t>(bundles * C));
    float* sums = partial.data();
    const DropoutMask mask(d);
    const bool active = d.active();
    const uint64_t first_row = mask.first_row();
    backward<T, R>(dx, dw, db, dln, y, stat, w, rule.centered, column_sum_rows,
                   [=](int64_t bundle, int64_t n, auto&& gradient) {
                     float* sum = sums + bundle * C;
                     T* to = dh + n * C;
                     if (!active && !dh) return gradient(0, C, [=](int64_t c, float v) { sum[c] += v; });
                     float masked[masked_run];
                     for (int64_t first = 0; first < C; first += masked_run) {
                       const int64_t count = std::min(masked_run, C - first);
                       if (active)
                         mask.draw(masked, first_row + static_cast<uint64_t>(n), 0, first, count);
                       else
                         std::fill_n(masked, count, 1.0f);
                       gradient(first, count, [&](int64_t c, float v) { masked[c - first] *= v; });
#pragma omp simd
                       for (int64_t i = 0; i < count; i++) {
                         sum[first + i] += masked[i];
                         put(to[first + i], masked[i]);
                       }
                     }
                   });
    for (int64_t bundle = 0; bundle < bundles && dh_b; bundle++)
#pragma omp simd
      for (int64_t c = 0; c < C; c++) dh_b[c] += sums[bundle * C + c];
  });
}

}  // namespace megalith::cpu
