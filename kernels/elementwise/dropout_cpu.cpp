#include "kernels/elementwise/dropout_cpu.h"
#include "kernels/elementwise/dropout.h"

#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual.h"
#include "kernels/loops/column_sums_cpu.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
template <class T, class R>
void masked_rows(T* y, const R* x, int64_t N, int64_t C, const Dropout& d) {
  const DropoutMask mask(d);
  const uint64_t first_row = mask.first_row();
  // Masks are drawn from the first column of the group.
  const int64_t before = d.first_column % 64, first_column = d.first_column - before;
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

void run(Queue& queue, const ApplyDropout& op) {
  if (!op.dropout.active()) {
    if (op.y.raw() != op.x.raw()) run(queue, Copy{.y = op.y, .x = op.x});
    return;
  }
  with_residual_types(op.y.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    masked_rows(op.y.data<T>(), op.x.data<R>(), op.x.rows(), op.x.cols(), op.dropout);
  });
}

void run(Queue&, const ResidualForward& op) {
  with_residual_types(op.h.dtype(), op.x.dtype(),
                      [&]<class T, class R>(T, R) { residual_rows<T, R>(op, 0, [](int64_t, R*) {}); });
}

void run(Queue& queue, const ResidualBackward& op) {
  run(queue, ApplyDropout{.y = op.dh, .x = op.dy, .dropout = op.dropout});
  if (op.db.empty()) return;
  with_compute_type(op.dh.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(op.db.data<float>(), op.dh.data<T>(), op.dh.rows(), op.dh.cols());
  });
}

}  // namespace megalith::cpu
