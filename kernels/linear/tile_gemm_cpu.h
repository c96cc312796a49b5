// Products of small f32 matrices in the first cache, on the calling thread: the inner step of attention, where calling
// the GEMM library would cost as much as the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/loops/vectors_cpu.h"

namespace megalith::cpu {

// Rows are padded to whole multiples of this number of floats, on every processor.
constexpr int64_t lanes = 16;

// A by (row, depth) strides, so that a transposed A is not copied; B and C have contiguous rows.
struct TileOperand {
  const float* data;
  int64_t row_stride, depth_stride;
};

// Computes Rows x (Vectors * vector_floats) of C in registers over the whole depth.
template <int Rows, int Vectors>
inline void tile_block(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t depth,
                       bool accumulate) {
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) sum[r][v] = accumulate ? load(c + r * ldc + v * vector_floats) : Vector{};
  for (int64_t k = 0; k < depth; k++) {
    Vector row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) row[v] = load(b + k * ldb + v * vector_floats);
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
    for (int v = 0; v < Vectors; v++) store(c + r * ldc + v * vector_floats, sum[r][v]);
}

// A block's sums, its vectors of B and one broadcast of A stay in registers: 6 x 4 sums take 29 of 32, 6 x 2 take 15
// of 16.
constexpr int64_t tile_block_rows = 6;
constexpr int tile_block_vectors = vector_registers == 32 ? 4 : 2;

template <int Vectors>
inline void tile_columns(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t M, int64_t depth,
                         bool accumulate) {
  const auto at = [&](int64_t m) { return TileOperand{a.data + m * a.row_stride, a.row_stride, a.depth_stride}; };
  int64_t m = 0;
  for (; m + tile_block_rows <= M; m += tile_block_rows)
    tile_block<tile_block_rows, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
  if (m + 4 <= M) {
    tile_block<4, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
    m += 4;
  }
  if (m + 2 <= M) {
    tile_block<2, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
    m += 2;
  }
  if (m < M) tile_block<1, Vectors>(c + m * ldc, ldc, at(m), b, ldb, depth, accumulate);
}

// C (M, N) = A (M, depth) B (depth, N), or C += it. N is a multiple of vector_floats. Each element is a sum in order of
// depth, so its bits do not depend on the tiles.
inline void tile_gemm(float* c, int64_t ldc, TileOperand a, const float* b, int64_t ldb, int64_t M, int64_t N,
                      int64_t depth, bool accumulate) {
  constexpr int64_t columns = tile_block_vectors * vector_floats;
  int64_t n = 0;
  for (; n + columns <= N; n += columns)
    tile_columns<tile_block_vectors>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
  if constexpr (columns == 4 * lanes)
    for (; n + 2 * lanes <= N; n += 2 * lanes) tile_columns<2>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
  for (; n < N; n += vector_floats) tile_columns<1>(c + n, ldc, a, b + n, ldb, M, depth, accumulate);
}

}  // namespace megalith::cpu
