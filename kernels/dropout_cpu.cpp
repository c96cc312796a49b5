#include "kernels/dropout_cpu.h"

#include <vector>

#include "kernels/column_sums_cpu.h"
#include "kernels/loops_cpu.h"
#include "kernels/ops_cpu.h"

namespace megalith::cpu {

namespace {
constexpr int64_t chunk = 256;  // columns whose factors are drawn at once; a multiple of 64
constexpr int64_t draw_work = 8;

// f(n, first, count, factors) over the elements of an (N, C) tensor, in runs of at most `chunk` columns.
template <class F>
void for_masked_runs(int64_t N, int64_t C, const Dropout& d, F&& f) {
  const DropoutMask mask(d);
  const auto first_row = static_cast<uint64_t>(d.first_row);
  parallel_for(N, C * draw_work, [=](int64_t begin, int64_t end) {
    float factors[chunk];
    for (int64_t n = begin; n < end; n++)
      for (int64_t c = 0; c < C; c += chunk) {
        const int64_t count = C - c < chunk ? C - c : chunk;
        mask.draw(factors, first_row + static_cast<uint64_t>(n), 0, c, count);
        f(n, c, count, factors);
      }
  });
}
}  // namespace

void dropout(Tensor y_, Tensor x_, const Dropout& d) {
  if (!d.active()) {
    if (y_.raw() != x_.raw()) copy(y_, x_);
    return;
  }
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = y_.data<T>();
    const T* x = x_.data<T>();
    const int64_t C = x_.cols();
    for_masked_runs(x_.rows(), C, d, [=](int64_t n, int64_t first, int64_t count, const float* factors) {
      const int64_t at = n * C + first;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) put(y[at + i], get(x[at + i]) * factors[i]);
    });
  });
}

void residual_forward(Tensor y_, Tensor x_, Tensor h_, Tensor b_, const Dropout& d) {
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = y_.data<T>();
    const T *x = x_.data<T>(), *h = h_.data<T>(), *b = b_.data<T>();
    const int64_t C = x_.cols();
    if (d.active()) {
      for_masked_runs(x_.rows(), C, d, [=](int64_t n, int64_t first, int64_t count, const float* factors) {
        const int64_t at = n * C + first;
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
          put(y[at + i], get(x[at + i]) + (get(h[at + i]) + get(b[first + i])) * factors[i]);
      });
      return;
    }
    parallel_for(x_.rows(), C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) put(y[n * C + c], get(x[n * C + c]) + (get(h[n * C + c]) + get(b[c])));
    });
  });
}

void residual_backward(Tensor dh, Tensor db, Tensor dy, const Dropout& d) {
  dropout(dh, dy, d);
  with_compute_type(dh.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(db.data<float>(), dh.data<T>(), dh.rows(), dh.cols());
  });
}

}  // namespace megalith::cpu
