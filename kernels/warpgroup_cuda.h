// Products of a warpgroup, four warps whose first is a multiple of four: what Hopper alone has (sm_90a; PTX manual,
// wgmma). For files *_hopper.cu, which are compiled for no other chip. As with device_cuda.h, what needs two
// implementations is in <warpgroup_primitives.h>: PTX in kernels/nvcc, and in tests/simt a product that is done as late
// as a wait allows, with registers that hold nothing of use till then.
//
//   fragments    of 64 rows, warp w has 16 w.., spread over its lanes as those of multiply_add in device_cuda.h
//   places       MatrixPlace m = matrix_place(p, panel): a matrix of bf16 or f16 in shared memory as `swizzled` below
//   has it,
//                from p on, which lies on a row that is a multiple of 8; `panel` elements from one panel to the next,
//                where a product's columns are in more than one. moved(m, elements): the matrix that many further on,
//                which begins on a row as before, or on a column that is a multiple of 16
//   products     product_of_rows<T, n, add>(d, a, b): d (64, n) [+]= a (64, 16) b^T, b (n, 16), both by places, or a
//                as fragments;
//                product_of_weights<T>(d, a, b): d (64, n) += a (64, 16), as fragments, times b (16, n), by place;
//                product_of_columns<T>(d, a, b): d (64, n) += a^T b, a (16, 64) and b (16, n), both by places
//   order        products_begin(d...): before the first product, and after sums or fragments d were touched otherwise;
//                products_commit(): those enqueued so far are a group; products_wait<m>(d...): all but the last m
//                groups are done, and the d named may be touched again. All by whole warpgroups, from one line
//   memory       publish_shared(): what this thread wrote to shared memory is seen by products enqueued after the next
//                barrier
#pragma once

#include <warpgroup_primitives.h>

#include "kernels/device_cuda.h"

namespace megalith::cuda {

constexpr int warpgroup_size = 128;
__device__ inline int warpgroup_index() { return static_cast<int>(threadIdx.x) / warpgroup_size; }

// Where element (row, column) of a matrix with `rows` rows lies: panels of 64 columns, whose rows of 128 bytes have
// their eight units of 16 bytes in an order of their own, so that neither eight rows of one unit nor eight units of
// one row come from the same banks ("128-byte swizzle"). The matrix begins on a multiple of 1024 bytes.
constexpr int panel_columns = 64;
__device__ constexpr int swizzled(int row, int column, int rows) {
  const int piece = column % panel_columns / 8 ^ row % 8;
  return (column / panel_columns * rows + row) * panel_columns + piece * 8 + column % 8;
}

}  // namespace megalith::cuda
