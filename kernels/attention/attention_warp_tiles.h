// Attention's tiles for warp products (mma.sync), which every GPU has. Rows lie an odd number of 16-byte units apart,
// for every head size that is a multiple of 16, so the 8 rows of a matrix load come from different banks, and a
// fragment's offset is the lane's own plus a constant.
#pragma once

#include "kernels/attention/attention_cuda.h"

namespace megalith::cuda::attention {

template <class E, int D>
struct WarpTiles {
  // The distance of rows in elements. Where units change places, it is an eighth of that of a row and the eighth after
  // it.
  static constexpr int row_elements = D + 8;
  static constexpr int64_t bytes(int rows) { return int64_t{rows} * row_elements * int64_t{sizeof(E)}; }
  template <int>
  __device__ static int at(int row, int column) {
    return row * row_elements + column;
  }

  // Multiplies a with the two right factors of one matrix load.
  __device__ static void multiply_add_two(float (&d0)[4], float (&d1)[4], const unsigned (&a)[4],
                                          const unsigned (&b)[4]) {
    const unsigned b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
    multiply_add<E>(d0, a, b0);
    multiply_add<E>(d1, a, b1);
  }

  // Computes d[m] (16 x 8n each) = own rows 16 (ms * warp + m).. times the other rows, transposed.
  template <int, int, int ms, int n>
  __device__ static void multiply_rows(float (&d)[ms][n][4], const E* own, const E* other) {
    // The row that this lane gives to a load of 16x16 elements, whose four registers are the fragment of a left factor,
    // or of two right factors whose columns are rows of the tile.
    const int lane = lane_index();
    own += at<0>(warp_index() * 16 * ms + lane % 16, lane / 16 * 8);
    other += at<0>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int m = 0; m < ms; m++)
#pragma unroll
      for (int j = 0; j < n; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[m][j][e] = 0;
#pragma unroll
    for (int c = 0; c < D; c += 16) {
      unsigned left[ms][4];
#pragma unroll
      for (int m = 0; m < ms; m++) load_matrix(left[m], own + at<0>(16 * m, c));
#pragma unroll
      for (int j = 0; j < n; j += 2) {
        unsigned right[4];
        load_matrix(right, other + at<0>(j * 8, c));
#pragma unroll
        for (int m = 0; m < ms; m++) multiply_add_two(d[m][j], d[m][j + 1], left[m], right);
      }
    }
  }

  // Computes d[m] (16 x D each) += a[m] (16 x 16 depth, fragments of left factors) times the other rows.
  template <int, int ms, int depth>
  __device__ static void multiply_weights(float (&d)[ms][D / 8][4], const unsigned (&a)[ms][depth][4], const E* other) {
    other += at<0>(lane_index() % 16, lane_index() / 16 * 8);
#pragma unroll
    for (int k = 0; k < depth; k++)
#pragma unroll
      for (int j = 0; j < D / 8; j += 2) {
        unsigned right[4];
        load_matrix_transposed(right, other + at<0>(k * 16, j * 8));
#pragma unroll
        for (int m = 0; m < ms; m++) multiply_add_two(d[m][j], d[m][j + 1], a[m][k], right);
      }
  }
};

// Host: returns the largest tile of the other side (64 rows, half of that and so on) with which `blocks` blocks fit on
// an SM, or one block fewer if no tile is small enough. `most` is the shared memory of a single block; with several,
// the system takes one more KiB for each (CUDA C++ Programming Guide, "Compute Capabilities").
template <class Bytes>
constexpr int most_rows(int64_t most, int blocks, int fewest, Bytes&& bytes) {
  for (; blocks > 0; blocks--)
    for (int rows = 64; rows >= fewest; rows /= 2)
      if (blocks * (bytes(rows) + 1024) <= most + 1024) return rows;
  return 0;
}

// Host: calls f(rows) with a constant, by the shared memory of compute capability 8.6, 8.9 and 12.0; 8.0; or 9.0 and
// 10.0.
template <int blocks, int fewest, class Bytes, class F>
void with_rows(const Queue& queue, Bytes, F&& f) {
  const auto with_memory = [&](auto most) {
    constexpr int rows = most_rows(decltype(most)::value, blocks, fewest, Bytes{});
    static_assert(rows > 0);
    f(std::integral_constant<int, rows>{});
  };
  if (queue.chip.shared_memory >= 227 << 10) return with_memory(std::integral_constant<int64_t, 227 << 10>{});
  if (queue.chip.shared_memory >= 163 << 10) return with_memory(std::integral_constant<int64_t, 163 << 10>{});
  with_memory(std::integral_constant<int64_t, 99 << 10>{});
}

}  // namespace megalith::cuda::attention
