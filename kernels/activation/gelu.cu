// GELU as in gelu_cpu.cpp: (1 + tanh(u)) / 2 = sigmoid(2u).
#include <cmath>

#include "kernels/activation/gelu.h"
#include "kernels/activation/sigmoid_cuda.h"
#include "kernels/loops/largest_cuda.h"
#include "kernels/loops/loops_cuda.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;
constexpr int steps = 2;
constexpr float slope = 1.5957691216f;  // 2 sqrt(2/pi)
constexpr float cubic = slope * 0.044715f;

__device__ inline float normal_probability(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }

template <class T, int n, GeluForm form, bool finds>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* y, const T* x, int64_t count, LargestOfBlocks to_largest, int64_t counted) {
  [[maybe_unused]] unsigned largest = 0;
  for_elements<n, steps>(
      count, [&](auto width, int64_t i) { return load<width>(x + i); },
      [&](auto width, int64_t i, const auto& from) {
        Vector<T, width> result;
        for (int k = 0; k < width; k++) {
          const float v = to_float(from[k]);
          if constexpr (form == GeluForm::erf) {
            result[k] = to<T>(v * normal_probability(v));
          } else {
            result[k] = to<T>(v * sigmoid<T>(v * (slope + cubic * v * v)));
          }
        }
        store(y + i, result);
        if constexpr (finds) take_larger(largest, result, counted - i);
      });
  if constexpr (finds) store_largest<threads>(to_largest, largest);
}

template <class T, int n>
struct Pair {
  Vector<T, n> dy, x;
};
template <class T, int n, GeluForm form, bool finds>
__global__ void __launch_bounds__(threads)
    backward_kernel(T* dx, const T* dy, const T* x, int64_t count, LargestOfBlocks to_largest, int64_t counted) {
  [[maybe_unused]] unsigned largest = 0;
  for_elements<n, steps>(
      count,
      [&](auto width, int64_t i) {
        return Pair<T, width>{load_once<width>(dy + i), load_once<width>(x + i)};
      },
      [&](auto width, int64_t i, const auto& from) {
        Vector<T, width> result;
        for (int k = 0; k < width; k++) {
          const float v = to_float(from.x[k]), square = v * v;
          if constexpr (form == GeluForm::erf) {
            const float density = 0.39894228f * expf(-0.5f * square);
            result[k] = to<T>(to_float(from.dy[k]) * (normal_probability(v) + v * density));
            continue;
          }
          const float s = sigmoid<T>(v * (slope + cubic * square));
          // s (1 - s) reaches 0 long before v^3 overflows, and so does its product with the derivative of u.
          const float spread = s * (1 - s);
          const float derivative = spread == 0.0f ? s : s + spread * v * (slope + 3 * cubic * square);
          result[k] = to<T>(to_float(from.dy[k]) * derivative);
        }
        store(dx + i, result);
        if constexpr (finds) take_larger(largest, result, counted - i);
      });
  if constexpr (finds) store_largest<threads>(to_largest, largest);
}

// Calls f(form, finds) with constants.
template <class Op, class F>
void with_choices(const Op& op, F&& f) {
  with_finding(op.largest, [&](auto finds) {
    if (op.form == GeluForm::erf) return f(std::integral_constant<GeluForm, GeluForm::erf>{}, finds);
    f(std::integral_constant<GeluForm, GeluForm::tanh>{}, finds);
  });
}
}  // namespace

void run(Queue queue, const GeluForward& op) {
  const int64_t count = op.x.numel();
  if (count == 0) return;
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<16 / sizeof(T)>(aligned(op.y.raw()) && aligned(op.x.raw()), [&](auto n) {
      const unsigned blocks = element_grid(count, n, steps);
      with_choices(op, [&](auto form, auto finds) {
        launch(queue, {op.name, blocks, threads}, forward_kernel<T, n, form, finds>, op.y.data<T>(), op.x.data<T>(),
               count, LargestOfBlocks(queue, op.largest, blocks), op.largest.rows * op.y.cols());
      });
      raise_largest(queue, op.name, op.largest.amax, blocks);
    });
  });
}

void run(Queue queue, const GeluBackward& op) {
  const int64_t count = op.x.numel();
  if (count == 0) return;
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<16 / sizeof(T)>(aligned(op.dx.raw()) && aligned(op.dy.raw()) && aligned(op.x.raw()), [&](auto n) {
      const unsigned blocks = element_grid(count, n, steps);
      with_choices(op, [&](auto form, auto finds) {
        launch(queue, {op.name, blocks, threads}, backward_kernel<T, n, form, finds>, op.dx.data<T>(), op.dy.data<T>(),
               op.x.data<T>(), count, LargestOfBlocks(queue, op.largest, blocks), op.largest.rows * op.dx.cols());
      });
      raise_largest(queue, op.name, op.largest.amax, blocks);
    });
  });
}

}  // namespace megalith::cuda
