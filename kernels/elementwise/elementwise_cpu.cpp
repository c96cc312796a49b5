#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/philox.h"
#include "kernels/loops/loops_cpu.h"
#include "kernels/tensor/in_place.h"

namespace megalith::cpu {

namespace {
template <class T>
void fill_with(Tensor y_, T value) {
  T* y = y_.data<T>();
  parallel_for(y_.numel(), 1, [=](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
}

template <class To, class From>
void convert(Tensor y_, Tensor x_) {
  To* y = y_.data<To>();
  const From* x = x_.data<From>();
  parallel_for(y_.numel(), 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; i++) put(y[i], get(x[i]));
  });
}

// Converts in parts if one tensor is the front of the other's memory.
template <class To, class From>
void convert_parts(Tensor y, Tensor x) {
  if (y.raw() != x.raw()) return convert<To, From>(y, x);
  convert_in_place(y.numel(), 1, sizeof(To) > sizeof(From),
                   [=](int64_t begin, int64_t end) { convert<To, From>(y.flat(begin, end), x.flat(begin, end)); });
}

template <class T>
void sum_rows_to(Tensor y_, Tensor x_, bool add) {
  T* y = y_.data<T>();
  const bfloat16* x = x_.data<bfloat16>();
  const int64_t n = y_.numel(), rows = x_.rows();
  parallel_for(n, rows, [=](int64_t begin, int64_t end) {
    constexpr int64_t width = 256;
    for (int64_t first = begin; first < end; first += width) {
      const int64_t count = std::min(width, end - first);
      float sums[width] = {};
      for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += get(x[r * n + first + i]);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) put(y[first + i], add ? get(y[first + i]) + sums[i] : sums[i]);
    }
  });
}

template <class T>
void add_to(Tensor y_, Tensor x_) {
  T* y = y_.data<T>();
  const T* x = x_.data<T>();
  parallel_for(y_.numel(), 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
      if constexpr (sizeof(T) == 2) {
        put(y[i], get(y[i]) + get(x[i]));
      } else {
        y[i] += x[i];
      }
    }
  });
}

// Returns the sum of f(x[i]) in f64. The blocks depend on n alone.
template <class F>
double block_sum(const float* x, int64_t n, F&& f) {
  constexpr int64_t max_blocks = 512;
  const int64_t size = std::max<int64_t>(1024, (n + max_blocks - 1) / max_blocks);
  const int64_t blocks = (n + size - 1) / size;
  std::array<double, max_blocks> partial{};
  parallel_for(blocks, size, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++) {
      const int64_t first = block * size, last = std::min(first + size, n);
      // Many sums at once: a single one would wait for its previous addition.
      constexpr int64_t width = 32;
      double sums[width] = {};
      int64_t i = first;
      for (; i + width <= last; i += width)
#pragma omp simd
        for (int64_t k = 0; k < width; k++) sums[k] += f(static_cast<double>(x[i + k]));
      for (; i < last; i++) sums[0] += f(static_cast<double>(x[i]));
      double sum = 0;
      for (double s : sums) sum += s;
      partial[static_cast<size_t>(block)] = sum;
    }
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; block++) sum += partial[static_cast<size_t>(block)];
  return sum;
}
}  // namespace

void run(Queue&, const Fill& op) {
  switch (op.y.dtype()) {
    case DType::f32: fill_with(op.y, static_cast<float>(op.value)); break;
    case DType::bf16: fill_with(op.y, bfloat16(static_cast<float>(op.value))); break;
    case DType::f16: fill_with(op.y, float16(static_cast<float>(op.value))); break;
    case DType::f64: fill_with(op.y, op.value); break;
    case DType::i32: fill_with(op.y, static_cast<int32_t>(op.value)); break;
    case DType::e4m3:
    case DType::e5m2: break;  // launch() refuses these
  }
}

void run(Queue&, const Copy& op) {
  if (op.y.dtype() == op.x.dtype()) {
    char* to = static_cast<char*>(op.y.raw());
    const char* from = static_cast<const char*>(op.x.raw());
    parallel_for(op.y.bytes(), 1, [=](int64_t begin, int64_t end) {
      std::memmove(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  } else if (op.y.dtype() == DType::f32) {
    with_16_bits(op.x.dtype(), [&]<class From>(From) { convert_parts<float, From>(op.y, op.x); });
  } else {
    with_16_bits(op.y.dtype(), [&]<class To>(To) { convert_parts<To, float>(op.y, op.x); });
  }
}

void run(Queue&, const Add& op) {
  if (op.y.dtype() == DType::f64) return add_to<double>(op.y, op.x);
  with_compute_type(op.y.dtype(), [&]<class T>(T) { add_to<T>(op.y, op.x); });
}

void run(Queue&, const SumRows& op) {
  if (op.y.dtype() == DType::f32) return sum_rows_to<float>(op.y, op.x, op.add);
  sum_rows_to<bfloat16>(op.y, op.x, op.add);
}

void run(Queue&, const AccumulateSum& op) {
  *op.out.data<double>() += op.scale * block_sum(op.x.data<float>(), op.x.numel(), [](double v) { return v; });
}

void run(Queue&, const AccumulateSquareSum& op) {
  *op.out.data<double>() += block_sum(op.x.data<float>(), op.x.numel(), [](double v) { return v * v; });
}

namespace {
// Writes elements from `first` on to y[0, n). Two uniforms make two normals (Box and Muller, A Note on the Generation
// of Random Normal Deviates, 1958), so a block of four words makes elements 4g to 4g + 3 whatever range is asked for.
void normal_run(float* y, int64_t n, uint64_t seed, uint64_t stream, int64_t first, double std) {
  const int64_t end = first + n;
  for (int64_t g = first / 4; g < (end + 3) / 4; g++) {
    const PhiloxBlock words = philox(seed, stream, static_cast<uint64_t>(g));
    for (int64_t pair = 0; pair < 2; pair++) {
      const double radius = std * std::sqrt(-2 * std::log(static_cast<double>(uniform(words[size_t(2 * pair)]))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(uniform(words[size_t(2 * pair + 1)]));
      const int64_t i = 4 * g + 2 * pair;
      if (first <= i && i < end) y[i - first] = static_cast<float>(radius * std::cos(angle));
      if (first <= i + 1 && i + 1 < end) y[i + 1 - first] = static_cast<float>(radius * std::sin(angle));
    }
  }
}
}  // namespace

void run(Queue&, const NormalFill& op) {
  float* y = op.y.data<float>();
  // With all columns a matrix is one run of elements; otherwise each row is one.
  const bool whole = op.columns.count == op.columns.total;
  const int64_t count = whole ? op.begin + op.y.numel() : op.columns.count, total = whole ? count : op.columns.total;
  parallel_for(op.y.numel(), 50, [=](int64_t from, int64_t to) {
    for (int64_t i = from; i < to;) {
      const int64_t row = (op.begin + i) / count, column = (op.begin + i) % count;
      const int64_t n = std::min(to - i, count - column);
      normal_run(y + i, n, op.seed, op.stream, row * total + op.columns.begin + column, op.std);
      i += n;
    }
  });
}

}  // namespace megalith::cpu
