// Products of a warpgroup, four warps whose first is a multiple of four (sm_90a only; PTX manual, wgmma). For files
// *_hopper.cu, which are compiled for Hopper only. As with device_cuda.h, <warpgroup_primitives.h> has two
// implementations: PTX in kernels/nvcc, and in tests/simt a product that is done as late as a wait allows, with
// undefined registers until then.
//
//   fragments    of 64 rows, warp w has 16 w.., spread over its lanes as those of multiply_add in device_cuda.h
//   descriptors  MatrixDescriptor m = matrix_descriptor(p, panel): a matrix of bf16 or f16 in shared memory, laid out
//   as
//                `swizzled` below, from p on, which lies on a row that is a multiple of 8; `panel` elements from one
//                panel to the next if a product needs several. moved(m, elements): the matrix that many further on,
//                which begins on such a row, or on a column that is a multiple of 16
//   products     product_of_rows<T, n, add>(d, a, b): d (64, n) [+]= a (64, 16) b^T, b (n, 16), both by descriptors,
//                or a as fragments;
//                product_of_weights<T>(d, a, b): d (64, n) += a (64, 16), as fragments, times b (16, n), by descriptor;
//                product_of_columns<T>(d, a, b): d (64, n) += a^T b, a (16, 64) and b (16, n), both by descriptors
//   order        products_begin(d...): before the first product, and after sums or fragments d were touched otherwise;
//                products_commit(): those enqueued so far are a group; products_wait<m>(d...): all but the last m
//                groups are done, and the d named may be touched again. All by whole warpgroups, from one line
//   memory       publish_shared(): what this thread wrote to shared memory is seen by products enqueued after the next
//                barrier
#pragma once

#include <warpgroup_primitives.h>

#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

constexpr int warpgroup_size = 128;
__device__ inline int warpgroup_index() { return static_cast<int>(threadIdx.x) / warpgroup_size; }

// Returns the offset of element (row, column) of a matrix with `rows` rows: panels of 64 columns, whose rows of 128
// bytes permute their eight units of 16 bytes, so that neither eight rows of one unit nor eight units of one row share
// banks ("128-byte swizzle"). The matrix is 1024-byte aligned.
constexpr int panel_columns = 64;
__device__ constexpr int swizzled(int row, int column, int rows) {
  const int unit = column % panel_columns / 8 ^ row % 8;
  return (column / panel_columns * rows + row) * panel_columns + unit * 8 + column % 8;
}

}  // namespace megalith::cuda
