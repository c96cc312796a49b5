#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise/dropout_cpu.h"
#include "kernels/loops/column_sums_cpu.h"
#include "kernels/loops/largest_cpu.h"
#include "kernels/norm/layernorm.h"

namespace megalith::cpu {

namespace {
// dw and db are summed over blocks of this many rows, then over blocks in order, so the number of threads does not
// matter.
constexpr int64_t block_rows = 32;

// Returns the bias, or zeros if it is empty.
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
void backward(const LayerNormBackward& op, int64_t bundle_rows, End&& end_row) {
  float *dw = op.dw.data_or_null<float>(), *db = op.db.data_or_null<float>();
  const T* w = op.w.data<T>();
  const bool centered = op.rule.centered;
  const int64_t N = op.x.rows(), C = op.x.cols(), blocks = (N + block_rows - 1) / block_rows;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * C));  // per block: dw, then db
  float* sums = partial.data();
  R* all_dx = op.dx.data<R>();
  const T* all_dy = op.dy.data<T>();
  const R* all_x = op.x.data<R>();
  const float* stats = op.stat.data<float>();
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

void run(Queue&, const LayerNormForward& op) {
  with_residual_types(op.y.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    T* y = op.y.data<T>();
    float* stat = op.stat.data<float>();
    const int64_t C = op.x.cols();
    std::vector<T> zeros;
    const R* x = op.x.data<R>();
    const T *w = op.w.data<T>(), *b = bias_of(op.b, zeros, C);
    parallel_for(op.x.rows(), 2 * C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) forward_row(y + n * C, stat + 2 * n, x + n * C, w, b, C, op.rule);
    });
  });
  raise_largest(op.largest, op.y);
}

void run(Queue&, const LayerNormBackward& op) {
  with_residual_types(op.dy.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    const int64_t C = op.x.cols();
    backward<T, R>(op, block_rows, [C](int64_t, int64_t, auto&& gradient) { gradient(0, C, [](int64_t, float) {}); });
  });
}

void run(Queue&, const ResidualLayerNormForward& op) {
  with_residual_types(op.ln.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    T* ln = op.ln.data<T>();
    float* stat = op.stat.data<float>();
    const int64_t C = op.x.cols();
    std::vector<T> zeros;
    const T *w = op.w.data<T>(), *b = bias_of(op.b, zeros, C);
    residual_rows<T, R>({.y = op.y, .x = op.x, .h = op.h, .b = op.h_b, .dropout = op.dropout}, 2 * C,
                        [=](int64_t n, const R* row) { forward_row(ln + n * C, stat + 2 * n, row, w, b, C, op.rule); });
  });
  raise_largest(op.largest, op.ln);
}

void run(Queue&, const ResidualLayerNormBackward& op) {
  with_residual_types(op.dln.dtype(), op.y.dtype(), [&]<class T, class R>(T, R) {
    T* dh = op.dh.raw() != op.dx.raw() ? op.dh.data<T>() : nullptr;
    float* dh_b = op.dh_b.data_or_null<float>();
    const int64_t N = op.y.rows(), C = op.y.cols(), bundles = (N + column_sum_rows - 1) / column_sum_rows;
    std::vector<float> partial(static_cast<size_t>(bundles * C));
    float* sums = partial.data();
    const DropoutMask mask(op.dropout);
    const bool active = op.dropout.active();
    const uint64_t first_row = mask.first_row();
    backward<T, R>(norm_of(op), column_sum_rows, [=](int64_t bundle, int64_t n, auto&& gradient) {
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
