// Products of small f32 matrices in the first cache, on the calling thread: the inner step of attention, where calling
// the GEMM library would cost as much as the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace megalith::cpu {

constexpr int64_t lanes = 16;  // floats of a vector; the compiler splits it where the processor has shorter ones

// Unaligned, and may alias floats. Functions take it by reference: the ABI of passing or returning one by value depends
// on the target processor of a file.
using Vector [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

// A by (row, depth) strides, so that a transposed A is not copied; B and C have contiguous rows.
struct TileOperand {
  const float* data;
  int64_t row_stride, depth_stride;
};

// Computes Rows x (Vectors * lanes) of C in registers over the whole depth.
template <int Rows, int Vectors>
inline void tile_block(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t depth,
                       bool accumulate) {
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++)
      sum[r][v] = accumulate ? *reinterpret_cast<const Vector*>(c + r * ldc + v * lanes) : Vector{};
  for (int64_t k = 0; k < depth; k++) {
    Vector row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) row[v] = *reinterpret_cast<const Vector*>(b + k * ldb + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const float factor = a.data[r * a.row_stride + k * a.depth_stride];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++) sum[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) *reinterpret_cast<Vector*>(c + r * ldc + v * lanes) = sum[r][v];
}

template <int Vectors>
inline void tile_columns(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t M, int64_t depth,
                         bool accumulate) {
  constexpr int rows = 6;  // 6 x 4 sums, 4 vectors of B and a broadcast fill 29 of 32 registers
  const auto at = [&](int64_t m) { return TileOperand{a.data + m * a.row_stride, a.row_stride, a.depth_stride}; };
  int64_t m = 0;
  for (; m + rows <= M; m += rows) tile_block<rows, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
  if (m + 3 <= M) {
    tile_block<3, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
    m += 3;
  }
  for (; m < M; m++) tile_block<1, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
}

// C (M, N) = A (M, depth) B (depth, N), or C += it. N is a multiple of `lanes`.
inline void tile_gemm(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t M, int64_t N,
                      int64_t depth, bool accumulate) {
  int64_t n = 0;
  for (; n + 4 * lanes <= N; n += 4 * lanes) tile_columns<4>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
  for (; n + 2 * lanes <= N; n += 2 * lanes) tile_columns<2>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
  for (; n < N; n += lanes) tile_columns<1>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
}

}  // namespace megalith::cpu
