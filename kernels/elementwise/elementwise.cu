#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/philox.h"
#include "kernels/loops/loops_cuda.h"
#include "kernels/tensor/in_place.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;
constexpr int steps = 4;
unsigned grid_of(int64_t count, int n) { return element_grid(count, n, steps); }

template <class T, int n>
__global__ void __launch_bounds__(threads) fill_kernel(T* y, T value, int64_t count) {
  for_elements<n, steps>(
      count, [](auto, int64_t) { return 0; },
      [&](auto width, int64_t i, int) {
        Vector<T, width> result;
        for (int k = 0; k < width; k++) result[k] = value;
        store(y + i, result);
      });
}

template <class To, class From, int n>
__global__ void __launch_bounds__(threads) copy_kernel(To* y, const From* x, int64_t count) {
  for_elements<n, steps>(
      count, [&](auto width, int64_t i) { return load_once<width>(x + i); },
      [&](auto width, int64_t i, const auto& from) {
        Vector<To, width> result;
        for (int k = 0; k < width; k++) result[k] = convert<To>(from[k]);
        store(y + i, result);
      });
}

// All elements are read before the first is written, since y and x may overlap.
constexpr int front_threads = 1024, front_steps = 4;
template <class To, class From>
__global__ void __launch_bounds__(front_threads) copy_front_kernel(To* y, const From* x, int64_t count) {
  From held[front_steps];
  for (int step = 0; step < front_steps; step++)
    if (const int64_t i = step * front_threads + threadIdx.x; i < count) held[step] = x[i];
  sync_threads();
  for (int step = 0; step < front_steps; step++)
    if (const int64_t i = step * front_threads + threadIdx.x; i < count) y[i] = convert<To>(held[step]);
}

template <class T, int n>
__global__ void __launch_bounds__(threads)
    sum_rows_kernel(T* y, const bfloat16* x, int64_t rows, int64_t count, bool add) {
  for_elements<n, 1>(
      count, [](auto, int64_t) { return 0; },
      [&](auto width, int64_t i, int) {
        float sums[width] = {};
        for (int64_t r = 0; r < rows; r++) {
          const Vector<bfloat16, width> row = load_once<width>(x + r * count + i);
          for (int k = 0; k < width; k++) sums[k] += to_float(row[k]);
        }
        Vector<T, width> result;
        if (add) result = load<width>(y + i);
        for (int k = 0; k < width; k++) result[k] = convert<T>(add ? to_float(result[k]) + sums[k] : sums[k]);
        store(y + i, result);
      });
}

template <class T>
__device__ T sum_of(T a, T b) {
  if constexpr (sizeof(T) == 2) {
    return to<T>(to_float(a) + to_float(b));
  } else {
    return a + b;
  }
}
template <class T, int n>
struct Terms {
  Vector<T, n> y, x;
};
template <class T, int n>
__global__ void __launch_bounds__(threads) add_kernel(T* y, const T* x, int64_t count) {
  for_elements<n, steps>(
      count,
      [&](auto width, int64_t i) {
        return Terms<T, width>{load<width>(y + i), load_once<width>(x + i)};
      },
      [&](auto width, int64_t i, const auto& from) {
        Vector<T, width> result;
        for (int k = 0; k < width; k++) result[k] = sum_of(from.y[k], from.x[k]);
        store(y + i, result);
      });
}

template <class T>
void fill_with(Queue queue, const Tensor& y, T value) {
  with_width<16 / sizeof(T)>(aligned(y.raw()), [&](auto n) {
    launch(queue, {"fill", grid_of(y.numel(), n), threads}, fill_kernel<T, n>, static_cast<T*>(y.raw()), value,
           y.numel());
  });
}

template <class To, class From>
void copy_as(Queue queue, const Tensor& y, const Tensor& x) {
  constexpr int n = 16 / (sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  with_width<n>(aligned(y.raw()) && aligned(x.raw()), [&](auto width) {
    launch(queue, {"copy", grid_of(y.numel(), width), threads}, copy_kernel<To, From, width>, static_cast<To*>(y.raw()),
           static_cast<const From*>(x.raw()), y.numel());
  });
}

// Converts in parts if one tensor is the front of the other's memory.
template <class To, class From>
void convert_parts(Queue queue, const Tensor& y, const Tensor& x) {
  if (y.raw() != x.raw()) return copy_as<To, From>(queue, y, x);
  constexpr int64_t front = front_threads * front_steps;
  convert_in_place(y.numel(), front, sizeof(To) > sizeof(From), [&](int64_t begin, int64_t end) {
    if (begin > 0) return copy_as<To, From>(queue, y.flat(begin, end), x.flat(begin, end));
    launch(queue, {"copy", 1, front_threads}, copy_front_kernel<To, From>, y.data<To>(), x.data<From>(), end);
  });
}

template <class T>
void sum_rows_to(Queue queue, const Tensor& y, const Tensor& x, bool add) {
  with_width<8>(in_vectors({y, x}), [&](auto n) {
    launch(queue, {"sum_rows", element_grid(y.numel(), n, 1), threads}, sum_rows_kernel<T, n>, y.data<T>(),
           x.data<bfloat16>(), x.rows(), y.numel(), add);
  });
}

template <class T>
void add_to(Queue queue, const Tensor& y, const Tensor& x) {
  with_width<16 / sizeof(T)>(aligned(y.raw()) && aligned(x.raw()), [&](auto n) {
    launch(queue, {"add", grid_of(y.numel(), n), threads}, add_kernel<T, n>, y.data<T>(), x.data<T>(), y.numel());
  });
}
}  // namespace

void run(Queue queue, const Fill& op) {
  if (op.y.numel() == 0) return;
  switch (op.y.dtype()) {
    case DType::f32: return fill_with(queue, op.y, static_cast<float>(op.value));
    case DType::bf16: return fill_with(queue, op.y, bfloat16(static_cast<float>(op.value)).bits);
    case DType::f16: return fill_with(queue, op.y, float16(static_cast<float>(op.value)).bits);
    case DType::f64: return fill_with(queue, op.y, op.value);
    case DType::i32: return fill_with(queue, op.y, static_cast<int32_t>(op.value));
    case DType::e4m3:
    case DType::e5m2: return;  // launch() refuses these
  }
}

namespace {
Tensor in_pairs(const Tensor& t) { return Tensor(t.raw(), DType::bf16, {t.numel() / 2}); }
}  // namespace

void run(Queue queue, const Copy& op) {
  if (op.y.numel() == 0) return;
  if (op.y.dtype() == op.x.dtype()) {
    switch (size_of(op.y.dtype())) {
      case 1: return copy_as<uint16_t, uint16_t>(queue, in_pairs(op.y), in_pairs(op.x));
      case 2: return copy_as<uint16_t, uint16_t>(queue, op.y, op.x);
      case 4: return copy_as<uint32_t, uint32_t>(queue, op.y, op.x);
      default: return copy_as<uint64_t, uint64_t>(queue, op.y, op.x);
    }
  }
  if (op.y.dtype() == DType::f32)
    return with_16_bits(op.x.dtype(), [&](auto tag) { convert_parts<float, decltype(tag)>(queue, op.y, op.x); });
  with_16_bits(op.y.dtype(), [&](auto tag) { convert_parts<decltype(tag), float>(queue, op.y, op.x); });
}

void run(Queue queue, const SumRows& op) {
  if (op.y.numel() == 0) return;
  if (op.y.dtype() == DType::f32) return sum_rows_to<float>(queue, op.y, op.x, op.add);
  sum_rows_to<bfloat16>(queue, op.y, op.x, op.add);
}

void run(Queue queue, const Add& op) {
  if (op.y.numel() == 0) return;
  if (op.y.dtype() == DType::f64) return add_to<double>(queue, op.y, op.x);
  with_compute_type(op.y.dtype(), [&](auto tag) { add_to<decltype(tag)>(queue, op.y, op.x); });
}

// --- Sums of all elements in f64, in two launches: each block writes one sum, then one block adds them.

namespace {
// Reads in groups of four, as vectors or not, so that the order does not depend on x's alignment.
template <bool squares, bool vectors>
__global__ void __launch_bounds__(threads) sum_kernel(double* partial, const float* x, int64_t count) {
  const auto term = [](float v) { return squares ? double{v} * double{v} : double{v}; };
  const int64_t whole = count / 4, first = int64_t{blockIdx.x} * threads + threadIdx.x;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = first; i < whole; i += int64_t{gridDim.x} * threads) {
    Vector<float, 4> v;
    if constexpr (vectors) {
      v = load_once<4>(x + 4 * i);
    } else {
      for (int k = 0; k < 4; k++) v[k] = x[4 * i + k];
    }
    sum += (term(v[0]) + term(v[1])) + (term(v[2]) + term(v[3]));
  }
  if (first < count - 4 * whole) sum += term(x[4 * whole + first]);
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
// Computes out += scale * the sum of the `count` partial sums.
__global__ void __launch_bounds__(threads)
    finish_sum_kernel(double* out, const double* partial, int count, double scale) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) sum += partial[i];
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) *out += scale * sum;
}

template <bool squares>
void sum_into(Queue queue, const char* name, const Tensor& out, const Tensor& x, double scale) {
  const int64_t count = x.numel();
  if (count == 0) return;
  // Eight blocks for each of the 132 SMs of H100 and H200, on every card, with at least eight vectors a thread.
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(1056, ceil_div(count, int64_t{threads} * 4 * 8)));
  double* partial = static_cast<double*>(queue.workspace);
  launch(queue, {name, blocks, threads}, aligned(x.raw()) ? sum_kernel<squares, true> : sum_kernel<squares, false>,
         partial, x.data<float>(), count);
  launch(queue, {name, 1, threads}, finish_sum_kernel, out.data<double>(), partial, blocks, scale);
}

// Draws as elementwise_cpu.cpp does, one element a thread. It runs once in a training.
__global__ void __launch_bounds__(threads) normal_kernel(float* y, int64_t n, uint64_t seed, uint64_t stream,
                                                         int64_t begin, double deviation, Columns columns) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= n) return;
  const int64_t place = place_in_whole(columns, begin + i);
  const PhiloxBlock words = philox(seed, stream, static_cast<uint64_t>(place / 4));
  const bool second = place % 4 >= 2;
  const double radius = deviation * sqrt(-2 * log(double{uniform(second ? words[2] : words[0])}));
  const double angle = 2 * std::numbers::pi * double{uniform(second ? words[3] : words[1])};
  y[i] = static_cast<float>(radius * (place % 2 ? sin(angle) : cos(angle)));
}
}  // namespace

void run(Queue queue, const AccumulateSum& op) { sum_into<false>(queue, op.name, op.out, op.x, op.scale); }
void run(Queue queue, const AccumulateSquareSum& op) { sum_into<true>(queue, op.name, op.out, op.x, 1); }

void run(Queue queue, const NormalFill& op) {
  const int64_t n = op.y.numel();
  if (n == 0) return;
  launch(queue, {op.name, blocks_for(n, threads), threads}, normal_kernel, op.y.data<float>(), n, op.seed, op.stream,
         op.begin, op.std, op.columns);
}

}  // namespace megalith::cuda
