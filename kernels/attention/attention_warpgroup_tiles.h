// Attention's tiles for warpgroup products (warpgroup_cuda.h), asynchronous and with factors in shared memory.
#pragma once

#include "kernels/attention/attention_cuda.h"
#include "kernels/loops/warpgroup_cuda.h"

namespace megalith::cuda::attention {

template <class E, int D>
struct WarpgroupTiles {
  static constexpr int row_elements = panel_columns;
  static constexpr int64_t bytes(int rows) {
    return ceil_div(D, panel_columns) * rows * panel_columns * int64_t{sizeof(E)};
  }
  template <int rows>
  __device__ static int at(int row, int column) {
    return swizzled(row, column, rows);
  }
  template <class... Registers>
  __device__ static void begin(Registers&... d) {
    products_begin(d[0]...);
  }
  __device__ static void commit() { products_commit(); }
  template <int but, class... Registers>
  __device__ static void wait(Registers&... d) {
    products_wait<but>(d[0]...);
  }

  // Computes d (64 x 8n) = own rows 64 * warpgroup.. times the other rows, transposed.
  template <int own_rows, int other_rows, int n>
  __device__ static void multiply_rows(float (&d)[1][n][4], const E* own, const E* other) {
    const MatrixDescriptor left = matrix_descriptor(own + at<own_rows>(warpgroup_index() * 64, 0)),
                           right = matrix_descriptor(other);
    product_of_rows<E, 8 * n, false>(d[0], left, right);
#pragma unroll
    for (int c = 16; c < D; c += 16)
      product_of_rows<E, 8 * n, true>(d[0], moved(left, at<own_rows>(0, c)), moved(right, at<other_rows>(0, c)));
  }

  // Own rows as fragments, for products that need not read them from shared memory.
  using Rows = unsigned[D / 16][4];
  template <int own_rows>
  __device__ static void load_rows(Rows& rows, const E* own) {
#pragma unroll
    for (int k = 0; k < D / 16; k++)
      load_matrix(rows[k], own + at<own_rows>(warp_index() * 16 + lane_index() % 16, 16 * k + lane_index() / 16 * 8));
  }
  template <int other_rows, int n>
  __device__ static void multiply_rows(float (&d)[1][n][4], const Rows& own, const E* other) {
    const MatrixDescriptor right = matrix_descriptor(other);
    product_of_rows<E, 8 * n, false>(d[0], own[0], right);
#pragma unroll
    for (int k = 1; k < D / 16; k++)
      product_of_rows<E, 8 * n, true>(d[0], own[k], moved(right, at<other_rows>(0, 16 * k)));
  }

  // Computes d (64 x D) += a (64 x 16 depth, as fragments) times the other rows.
  template <int other_rows, int depth>
  __device__ static void multiply_weights(float (&d)[1][D / 8][4], const unsigned (&a)[1][depth][4], const E* other) {
    const MatrixDescriptor right = matrix_descriptor(other, at<other_rows>(0, panel_columns));
#pragma unroll
    for (int k = 0; k < depth; k++) product_of_weights<E>(d[0], a[0][k], moved(right, at<other_rows>(16 * k, 0)));
  }

  // Computes d (64 x D) += columns 64 * warpgroup.. of other_rows rows in panels, transposed, times the other rows.
  template <int weight_rows, int other_rows>
  __device__ static void multiply_columns(float (&d)[1][D / 8][4], const E* weights, const E* other) {
    const MatrixDescriptor left =
                               matrix_descriptor(weights + swizzled(0, warpgroup_index() * panel_columns, weight_rows)),
                           right = matrix_descriptor(other, at<other_rows>(0, panel_columns));
#pragma unroll
    for (int k = 0; k < other_rows; k += 16)
      product_of_columns<E>(d[0], moved(left, k * panel_columns), moved(right, at<other_rows>(k, 0)));
  }
};

}  // namespace megalith::cuda::attention
