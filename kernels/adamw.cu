// One pass: a thread takes four neighbours of every tensor.
#include <cmath>

#include "kernels/adamw.h"
#include "kernels/loops_cuda.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;

struct Rates {
  float b1, b2, c1, c2, rate, root, keep, epsilon;
};
Rates rates_of(const AdamW& a) {
  const auto t = static_cast<double>(a.update);
  const auto f32 = [](double v) { return static_cast<float>(v); };
  return {.b1 = f32(a.beta1),
          .b2 = f32(a.beta2),
          .c1 = f32(1 - a.beta1),
          .c2 = f32(1 - a.beta2),
          .rate = f32(a.learning_rate / (1 - std::pow(a.beta1, t))),
          .root = f32(1 / (1 - std::pow(a.beta2, t))),
          .keep = f32(1 - a.learning_rate * a.weight_decay),
          .epsilon = f32(a.epsilon)};
}

template <int n>
struct State {
  Vector<float, n> p, m, v, grad;
};

// working may be null.
template <class T, int n>
__global__ void __launch_bounds__(threads) update_kernel(float* p, float* m, float* v, T* working, const float* grad,
                                                         const double* scale, int64_t count, Rates r) {
  const float factor = static_cast<float>(*scale);
  for_elements<n, 1>(
      count,
      [&](auto width, int64_t i) {
        return State<width>{load<width>(p + i), load<width>(m + i), load<width>(v + i), load_once<width>(grad + i)};
      },
      [&](auto width, int64_t i, auto& s) {
        Vector<T, width> rounded;
        for (int k = 0; k < width; k++) {
          const float g = factor * s.grad[k];
          s.m[k] = r.b1 * s.m[k] + r.c1 * g;
          s.v[k] = r.b2 * s.v[k] + r.c2 * (g * g);
          s.p[k] = r.keep * s.p[k] - r.rate * s.m[k] / (sqrtf(s.v[k] * r.root) + r.epsilon);
          rounded[k] = to<T>(s.p[k]);
        }
        store(p + i, s.p);
        store(m + i, s.m);
        store(v + i, s.v);
        if (working) store(working + i, rounded);
      });
}
}  // namespace

void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale,
                  const AdamW& a) {
  const int64_t count = master.numel();
  if (count == 0) return;
  with_compute_type(working.empty() ? DType::f32 : working.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* rounded = working.empty() ? nullptr : working.data<T>();
    const bool vectors = aligned(master.raw()) && aligned(m.raw()) && aligned(v.raw()) && aligned(grad.raw()) &&
                         aligned(rounded, 4 * sizeof(T));
    const int n = vectors ? 4 : 1;
    launch(queue, {"adamw_update", element_grid(count, n, 1), threads},
           vectors ? update_kernel<T, 4> : update_kernel<T, 1>, master.data<float>(), m.data<float>(), v.data<float>(),
           rounded, grad.data<float>(), scale.data<double>(), count, rates_of(a));
  });
}

}  // namespace megalith::cuda
