// SwiGLU, elementwise: a thread takes the same vectors of gate and up.
#include <cmath>

#include "kernels/activation/sigmoid_cuda.h"
#include "kernels/activation/swiglu.h"
#include "kernels/loops/divisor.h"
#include "kernels/loops/largest_cuda.h"
#include "kernels/loops/loops_cuda.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;
constexpr int steps = 2;

// Returns the index in x of the gate of element i of y; its up is F elements further.
__device__ inline int64_t gate_of(int64_t i, const Divisor& F) { return i + F.quotient(i) * F.value(); }

template <class T, int n>
struct Halves {
  Vector<T, n> gate, up, dy;
};

template <class T, int n, bool finds>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* y, const T* x, int64_t count, Divisor F, LargestOfBlocks to_largest) {
  [[maybe_unused]] unsigned largest = 0;
  [[maybe_unused]] const int64_t counted = to_largest.rows * F.value();
  for_elements<n, steps>(
      count,
      [&](auto width, int64_t i) {
        const T* gate = x + gate_of(i, F);
        return Halves<T, width>{load<width>(gate), load<width>(gate + F.value()), {}};
      },
      [&](auto width, int64_t i, const auto& from) {
        Vector<T, width> result;
        for (int k = 0; k < width; k++) {
          const float g = to_float(from.gate[k]);
          result[k] = to<T>(g * sigmoid<T>(g) * to_float(from.up[k]));
        }
        store(y + i, result);
        if constexpr (finds) take_larger(largest, result, counted - i);
      });
  if constexpr (finds) store_largest<threads>(to_largest, largest);
}

template <class T, int n, bool finds>
__global__ void __launch_bounds__(threads)
    backward_kernel(T* dx, const T* dy, const T* x, int64_t count, Divisor F, LargestOfBlocks to_largest) {
  [[maybe_unused]] unsigned largest = 0;
  [[maybe_unused]] const int64_t counted = to_largest.rows * F.value();
  for_elements<n, steps>(
      count,
      [&](auto width, int64_t i) {
        const T* gate = x + gate_of(i, F);
        return Halves<T, width>{load_once<width>(gate), load_once<width>(gate + F.value()), load_once<width>(dy + i)};
      },
      [&](auto width, int64_t i, const auto& from) {
        Vector<T, width> dgate, dup;
        for (int k = 0; k < width; k++) {
          const float g = to_float(from.gate[k]), s = sigmoid<T>(g), silu = g * s, above = to_float(from.dy[k]);
          dgate[k] = to<T>(above * to_float(from.up[k]) * (s + silu * (1 - s)));
          dup[k] = to<T>(above * silu);
        }
        T* to_gate = dx + gate_of(i, F);
        store(to_gate, dgate);
        store(to_gate + F.value(), dup);
        if constexpr (finds) {
          take_larger(largest, dgate, counted - i);
          take_larger(largest, dup, counted - i);
        }
      });
  if constexpr (finds) store_largest<threads>(to_largest, largest);
}
}  // namespace

void run(Queue queue, const SwigluForward& op) {
  const int64_t count = op.y.numel();
  if (count == 0) return;
  with_compute_type(op.y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<16 / sizeof(T)>(in_vectors({op.y, op.x}), [&](auto n) {
      const unsigned blocks = element_grid(count, n, steps);
      with_finding(op.largest, [&](auto finds) {
        launch(queue, {op.name, blocks, threads}, forward_kernel<T, n, finds>, op.y.data<T>(), op.x.data<T>(), count,
               Divisor(op.y.cols(), count), LargestOfBlocks(queue, op.largest, blocks));
      });
      raise_largest(queue, op.name, op.largest.amax, blocks);
    });
  });
}

void run(Queue queue, const SwigluBackward& op) {
  const int64_t count = op.dy.numel();
  if (count == 0) return;
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<16 / sizeof(T)>(in_vectors({op.dx, op.dy, op.x}), [&](auto n) {
      const unsigned blocks = element_grid(count, n, steps);
      with_finding(op.largest, [&](auto finds) {
        launch(queue, {op.name, blocks, threads}, backward_kernel<T, n, finds>, op.dx.data<T>(), op.dy.data<T>(),
               op.x.data<T>(), count, Divisor(op.dy.cols(), count), LargestOfBlocks(queue, op.largest, blocks));
      });
      raise_largest(queue, op.name, op.largest.amax, blocks);
    });
  });
}

}  // namespace megalith::cuda
