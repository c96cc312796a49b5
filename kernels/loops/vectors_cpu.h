// Vectors of floats as wide as the registers of the processor that a file is compiled for, and the number of these
// registers, by which blocks of sums are sized.
#pragma once

#include <cstdint>

namespace megalith::cpu {

#if defined(__AVX512F__)
constexpr int64_t vector_floats = 16;
constexpr int vector_registers = 32;
#elif defined(__AVX__)
constexpr int64_t vector_floats = 8;
constexpr int vector_registers = 16;
#elif defined(__ARM_NEON)
constexpr int64_t vector_floats = 4;
constexpr int vector_registers = 32;
#else
constexpr int64_t vector_floats = 4;
constexpr int vector_registers = 16;
#endif

// Unaligned, and allowed to alias the floats it is made of.
using Vector [[gnu::vector_size(4 * vector_floats), gnu::aligned(4), gnu::may_alias]] = float;
using IntVector [[gnu::vector_size(4 * vector_floats)]] = int32_t;
using BitVector [[gnu::vector_size(4 * vector_floats)]] = uint32_t;
using Vector16Bits [[gnu::vector_size(2 * vector_floats), gnu::aligned(2), gnu::may_alias]] = uint16_t;

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline Vector16Bits load_16_bits(const void* from) { return *static_cast<const Vector16Bits*>(from); }
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

// Calls a shuffle with constant lanes: those of a, then those of b.
template <int... Lanes>
inline Vector shuffled(Vector a, Vector b) {
  return __builtin_shuffle(a, b, IntVector{Lanes...});
}

// Transposes the block of rows in place. With AVX2 it uses shuffles within the halves of a register, one instruction
// each, and exchanges halves. Otherwise each stage interleaves the two halves of the rows, as in a perfect shuffle.
inline void transpose_rows(Vector* row) {
  constexpr int n = vector_floats;
  Vector other[n];
  if constexpr (n == 8) {
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      other[i] = shuffled<0, 8, 1, 9, 4, 12, 5, 13>(row[i], row[i + 1]);
      other[i + 1] = shuffled<2, 10, 3, 11, 6, 14, 7, 15>(row[i], row[i + 1]);
    }
    Vector four[8];  // four[c] has columns c and c + 4 of rows 0 to 3, four[4 + c] of rows 4 to 7
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Vector a = other[i / 2 * 4 + i % 2], b = other[i / 2 * 4 + i % 2 + 2];
      four[i / 2 * 4 + i % 2 * 2] = shuffled<0, 1, 8, 9, 4, 5, 12, 13>(a, b);
      four[i / 2 * 4 + i % 2 * 2 + 1] = shuffled<2, 3, 10, 11, 6, 7, 14, 15>(a, b);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
      row[c] = shuffled<0, 1, 2, 3, 8, 9, 10, 11>(four[c], four[4 + c]);
      row[4 + c] = shuffled<4, 5, 6, 7, 12, 13, 14, 15>(four[c], four[4 + c]);
    }
    return;
  }
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
}

// Writes to `to` the transposed block of vector_floats rows and columns whose row i load_row(i) returns: at most
// `columns` rows of it, and zeros where i would be `rows` or more.
template <class LoadRow>
inline void transpose_block(float* to, int64_t to_stride, LoadRow load_row, int64_t columns, int64_t rows) {
  constexpr int n = vector_floats;
  Vector row[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; i++) row[i] = i < rows ? load_row(i) : Vector{};
  transpose_rows(row);
#pragma GCC unroll 16
  for (int i = 0; i < n; i++)
    if (i < columns) store(to + i * to_stride, row[i]);
}
inline void transpose_block(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t columns,
                            int64_t rows) {
  transpose_block(
      to, to_stride, [=](int64_t i) { return load(from + i * from_stride); }, columns, rows);
}

}  // namespace megalith::cpu
