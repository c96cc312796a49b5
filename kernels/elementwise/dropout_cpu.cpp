#include "kernels/elementwise/dropout_cpu.h"
#include "kernels/elementwise/dropout.h"

#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/loops/column_sums_cpu.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
template <class T, class R>
void masked_rows(T* y, const R* x, int64_t N, int64_t C, const Dropout& d) {
  const DropoutMask mask(d);
  const uint64_t first_row = mask.first_row();
  const int64_t before = d.first_column % 64, first_column = d.first_column - before;  // masks are drawn from there
  parallel_for(N, C * draw_work, [=](int64_t begin, int64_t end) {
    float drawn[64 + masked_run];
    const float* factors = drawn + before;
    for (int64_t n = begin; n < end; n++)
      for (int64_t c = 0; c < C; c += masked_run) {
        const int64_t at = n * C + c, count = std::min(masked_run, C - c);
        mask.draw(drawn, first_row + static_cast<uint64_t>(n), 0, first_column + c, before + count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) put(y[at + i], get(x[at + i]) * factors[i]);
      }
  });
}
}  // namespace

void dropout(Tensor y, Tensor x, const Dropout& d) {
  if (!d.active()) {
    if (y.raw() != x.raw()) copy(y, x);
    return;
  }
  with_residual_types(y.dtype(), x.dtype(),
                      [&]<class T, class R>(T, R) { masked_rows(y.data<T>(), x.data<R>(), x.rows(), x.cols(), d); });
}

void residual_forward(Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d) {
  with_residual_types(h.dtype(), x.dtype(),
                      [&]<class T, class R>(T, R) { residual_rows<T, R>(y, x, h, b, d, 0, [](int64_t, R*) {}); });
}

void residual_backward(Tensor dh, Tensor db, Tensor dy, const Dropout& d) {
  dropout(dh, dy, d);
  if (db.empty()) return;
  with_compute_type(dh.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(db.data<float>(), dh.data<T>(), dh.rows(), dh.cols());
  });
}

}  // namespace megalith::cpu
