#include "kernels/activation/swiglu.h"
#include "kernels/loops/largest_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

void run(Queue&, const SwigluForward& op) {
  with_compute_type(op.y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = op.y.data<T>();
    const T* x = op.x.data<T>();
    const int64_t F = op.y.cols();
    parallel_for(op.y.rows(), 8 * F, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T *gate = x + 2 * n * F, *up = gate + F;
        T* to = y + n * F;
#pragma omp simd
        for (int64_t c = 0; c < F; c++) put(to[c], get(gate[c]) * sigmoid(get(gate[c])) * get(up[c]));
      }
    });
  });
  raise_largest(op.largest, op.y);
}

// silu'(g) = s + g s (1 - s), s = sigmoid(g).
void run(Queue&, const SwigluBackward& op) {
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dx = op.dx.data<T>();
    const T *dy = op.dy.data<T>(), *x = op.x.data<T>();
    const int64_t F = op.dy.cols();
    parallel_for(op.dy.rows(), 12 * F, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T *gate = x + 2 * n * F, *up = gate + F, *d = dy + n * F;
        T *dgate = dx + 2 * n * F, *dup = dgate + F;
#pragma omp simd
        for (int64_t c = 0; c < F; c++) {
          const float g = get(gate[c]), s = sigmoid(g), silu = g * s, above = get(d[c]), u = get(up[c]);
          put(dgate[c], above * u * (s + silu * (1 - s)));
          put(dup[c], above * silu);
        }
      }
    });
  });
  raise_largest(op.largest, op.dx);
}

}  // namespace megalith::cpu
