// Whole tensors, one pass: a thread takes `steps` vectors, neighbours side by side, so that many loads are under way.
#include "kernels/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, steps = 4;

// f(i) for the first elements i, n at a time, of all `count`; elements past the last whole vector are taken one by one
// by g(i).
template <int n, class F, class G>
__device__ void each_vector(int64_t count, F&& f, G&& g) {
  const int64_t whole = count / n;
  const int64_t first = int64_t{blockIdx.x} * threads * steps + threadIdx.x;
#pragma unroll
  for (int step = 0; step < steps; step++)
    if (const int64_t i = first + step * threads; i < whole) f(i * n);
  if (const int64_t i = whole * n + first; first < n && i < count) g(i);
}
dim3 grid_of(int64_t count, int n) { return blocks_for(count / n + 1, threads * steps); }

template <class T, int n>
__global__ void __launch_bounds__(threads) fill_kernel(T* y, T value, int64_t count) {
  Vector<T, n> vector;
  for (int i = 0; i < n; i++) vector[i] = value;
  each_vector<n>(
      count, [&](int64_t i) { store(y + i, vector); }, [&](int64_t i) { y[i] = value; });
}

template <class To, class From, int n>
__global__ void __launch_bounds__(threads) copy_kernel(To* y, const From* x, int64_t count) {
  each_vector<n>(
      count,
      [&](int64_t i) {
        const Vector<From, n> from = load_once<n>(x + i);
        Vector<To, n> vector;
        for (int k = 0; k < n; k++) vector[k] = convert<To>(from[k]);
        store(y + i, vector);
      },
      [&](int64_t i) { y[i] = convert<To>(x[i]); });
}

template <class T>
__device__ T sum_of(T a, T b) {
  return a + b;
}
template <>
__device__ inline bfloat16 sum_of(bfloat16 a, bfloat16 b) {
  return to<bfloat16>(to_float(a) + to_float(b));
}
template <class T, int n>
__global__ void __launch_bounds__(threads) add_kernel(T* y, const T* x, int64_t count) {
  each_vector<n>(
      count,
      [&](int64_t i) {
        const Vector<T, n> a = load<n>(y + i), b = load_once<n>(x + i);
        Vector<T, n> vector;
        for (int k = 0; k < n; k++) vector[k] = sum_of(a[k], b[k]);
        store(y + i, vector);
      },
      [&](int64_t i) { y[i] = sum_of(y[i], x[i]); });
}

template <class T>
void fill_with(Queue queue, const Tensor& y, T value) {
  constexpr int n = 16 / sizeof(T);
  T* to = y.data<T>();
  if (aligned(y.raw())) {
    launch(queue, {"fill", grid_of(y.numel(), n), threads}, fill_kernel<T, n>, to, value, y.numel());
  } else {
    launch(queue, {"fill", grid_of(y.numel(), 1), threads}, fill_kernel<T, 1>, to, value, y.numel());
  }
}

template <class To, class From>
void copy_as(Queue queue, const Tensor& y, const Tensor& x) {
  constexpr int n = 16 / (sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  To* to = static_cast<To*>(y.raw());
  const From* from = static_cast<const From*>(x.raw());
  if (aligned(y.raw()) && aligned(x.raw())) {
    launch(queue, {"copy", grid_of(y.numel(), n), threads}, copy_kernel<To, From, n>, to, from, y.numel());
  } else {
    launch(queue, {"copy", grid_of(y.numel(), 1), threads}, copy_kernel<To, From, 1>, to, from, y.numel());
  }
}

template <class T>
void add_to(Queue queue, const Tensor& y, const Tensor& x) {
  constexpr int n = 16 / sizeof(T);
  T* to = y.data<T>();
  const T* from = x.data<T>();
  if (aligned(y.raw()) && aligned(x.raw())) {
    launch(queue, {"add", grid_of(y.numel(), n), threads}, add_kernel<T, n>, to, from, y.numel());
  } else {
    launch(queue, {"add", grid_of(y.numel(), 1), threads}, add_kernel<T, 1>, to, from, y.numel());
  }
}
}  // namespace

void fill(Queue queue, Tensor y, double value) {
  if (y.numel() == 0) return;
  switch (y.dtype()) {
    case DType::f32: return fill_with(queue, y, static_cast<float>(value));
    case DType::bf16: return fill_with(queue, y, bfloat16(static_cast<float>(value)));
    case DType::f64: return fill_with(queue, y, value);
    case DType::i32: return fill_with(queue, y, static_cast<int32_t>(value));
  }
}

void copy(Queue queue, Tensor y, Tensor x) {
  if (y.numel() == 0) return;
  if (y.dtype() == x.dtype()) {
    switch (size_of(y.dtype())) {
      case 2: return copy_as<uint16_t, uint16_t>(queue, y, x);
      case 4: return copy_as<uint32_t, uint32_t>(queue, y, x);
      default: return copy_as<uint64_t, uint64_t>(queue, y, x);
    }
  }
  if (y.dtype() == DType::bf16) return copy_as<bfloat16, float>(queue, y, x);
  copy_as<float, bfloat16>(queue, y, x);
}

void add(Queue queue, Tensor y, Tensor x) {
  if (y.numel() == 0) return;
  if (y.dtype() == DType::f32) return add_to<float>(queue, y, x);
  if (y.dtype() == DType::bf16) return add_to<bfloat16>(queue, y, x);
  add_to<double>(queue, y, x);
}

}  // namespace megalith::cuda
