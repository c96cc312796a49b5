#include <cmath>

#include "kernels/activation/gelu.h"
#include "kernels/loops/largest_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
// (1 + tanh(u)) / 2 = sigmoid(2u), so y = x sigmoid(z) with z = 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr float slope = 1.5957691216f;
constexpr float cubic = slope * 0.044715f;

inline float gelu(float x) { return x * sigmoid(x * (slope + cubic * x * x)); }

inline float gelu_derivative(float x) {
  const float square = x * x;
  const float s = sigmoid(x * (slope + cubic * square));
  // s (1 - s) reaches 0 long before x^3 overflows, and so does its product with dz.
  const float spread = s * (1 - s);
  return spread == 0.0f ? s : s + spread * x * (slope + 3 * cubic * square);
}

constexpr float inverse_root_2 = 0.70710678f, inverse_root_2_pi = 0.39894228f;
inline float normal_probability(float x) { return 0.5f + 0.5f * std::erf(x * inverse_root_2); }
inline float gelu_erf_derivative(float x) {
  return normal_probability(x) + x * inverse_root_2_pi * cpu::exp(-0.5f * x * x);
}

template <class T>
void erf_forward(T* y, const T* x, int64_t count) {
  parallel_for(count, 20, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) put(y[i], get(x[i]) * normal_probability(get(x[i])));
  });
}
template <class T>
void erf_backward(T* dx, const T* dy, const T* x, int64_t count) {
  parallel_for(count, 30, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) put(dx[i], get(dy[i]) * gelu_erf_derivative(get(x[i])));
  });
}
}  // namespace

void run(Queue&, const GeluForward& op) {
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = op.y.data<T>();
    const T* x = op.x.data<T>();
    if (op.form == GeluForm::erf) return erf_forward(y, x, op.x.numel());
    parallel_for(op.x.numel(), 8, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; i++) put(y[i], gelu(get(x[i])));
    });
  });
  raise_largest(op.largest, op.y);
}

void run(Queue&, const GeluBackward& op) {
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dx = op.dx.data<T>();
    const T* dy = op.dy.data<T>();
    const T* x = op.x.data<T>();
    if (op.form == GeluForm::erf) return erf_backward(dx, dy, x, op.x.numel());
    parallel_for(op.x.numel(), 10, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; i++) put(dx[i], get(dy[i]) * gelu_derivative(get(x[i])));
    });
  });
  raise_largest(op.largest, op.dx);
}

}  // namespace megalith::cpu
