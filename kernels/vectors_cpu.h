// Vectors of floats as wide as the registers of the processor that a file is compiled for, and how many registers there
// are: what blocks of sums are cut to.
#pragma once

#include <cstdint>

namespace megalith::cpu {

#if defined(__AVX512F__)
constexpr int64_t vector_floats = 16;
constexpr int vector_registers = 32;
#elif defined(__AVX__)
constexpr int64_t vector_floats = 8;
constexpr int vector_registers = 16;
#else
constexpr int64_t vector_floats = 4;
constexpr int vector_registers = 16;
#endif

// Unaligned, and allowed to alias the floats it is made of.
using Vector [[gnu::vector_size(4 * vector_floats), gnu::aligned(4), gnu::may_alias]] = float;
using IntVector [[gnu::vector_size(4 * vector_floats)]] = int32_t;
using BitVector [[gnu::vector_size(4 * vector_floats)]] = uint32_t;

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }

inline float sum_of_lanes(Vector v) {
  float lane[vector_floats], sum = 0;
  store(lane, v);
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < vector_floats; i++) sum += lane[i];
  return sum;
}
inline float max_of_lanes(Vector v) {
  float lane[vector_floats], max = v[0];
  store(lane, v);
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < vector_floats; i++) max = lane[i] > max ? lane[i] : max;
  return max;
}

// `to` gets the transposed block of vector_floats rows and columns at `from`: `columns` rows of it at most, and zeros
// for what is beyond `rows` rows of `from`. Each stage interleaves the two halves of the rows, as in a perfect shuffle.
inline void transpose_block(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t columns,
                            int64_t rows) {
  constexpr int n = vector_floats;
  Vector row[n], other[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; i++) row[i] = i < rows ? load(from + i * from_stride) : Vector{};
  IntVector low, high;
  for (int i = 0; i < n; i++) {
    low[i] = i / 2 + i % 2 * n;
    high[i] = low[i] + n / 2;
  }
#pragma GCC unroll 4
  for (int stage = 1; stage < n; stage *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; i++) {
      other[2 * i] = __builtin_shuffle(row[i], row[i + n / 2], low);
      other[2 * i + 1] = __builtin_shuffle(row[i], row[i + n / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) row[i] = other[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; i++)
    if (i < columns) store(to + i * to_stride, row[i]);
}

}  // namespace megalith::cpu
