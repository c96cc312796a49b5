#include "kernels/activation/swiglu.h"
#include "kernels/loops/loops_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

void swiglu_forward(Tensor y_, Tensor x_) {
  with_compute_type(y_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = y_.data<T>();
    const T* x = x_.data<T>();
    const int64_t F = y_.cols();
    parallel_for(y_.rows(), 8 * F, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T *gate = x + 2 * n * F, *up = gate + F;
        T* to = y + n * F;
#pragma omp simd
        for (int64_t c = 0; c < F; c++) put(to[c], get(gate[c]) * sigmoid(get(gate[c])) * get(up[c]));
      }
    });
  });
}

// silu'(g) = s + g s (1 - s), s = sigmoid(g).
void swiglu_backward(Tensor dx_, Tensor dy_, Tensor x_) {
  with_compute_type(dy_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dx = dx_.data<T>();
    const T *dy = dy_.data<T>(), *x = x_.data<T>();
    const int64_t F = dy_.cols();
    parallel_for(dy_.rows(), 12 * F, [=](int64_t begin, int64_t end) {
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
}

}  // namespace megalith::cpu
