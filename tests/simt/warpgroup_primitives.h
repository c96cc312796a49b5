// The device functions of kernels/loops/warpgroup_cuda.h on the CPU. Their twins for nvcc are in kernels/nvcc.
#pragma once

#include <device_primitives.h>

#include "tests/simt/warpgroup.h"

namespace megalith::cuda {

using simt::MatrixDescriptor;
inline MatrixDescriptor matrix_descriptor(const void* p, int panel = 8) {
  return simt::matrix_descriptor(p, 2 * panel);
}
inline MatrixDescriptor moved(MatrixDescriptor m, int elements) { return simt::moved_by(2 * elements, m); }

template <class... D>
void products_begin(D&...) {
  simt::products_begin(Where::current());
}
inline void products_commit(Where where = Where::current()) { simt::products_commit(where); }
template <int m, class... D>
void products_wait(D&...) {
  simt::products_wait(m, Where::current());
}
inline void publish_shared() { simt::publish_shared(); }

template <class T, int n, bool add>
void product_of_rows(float (&d)[n / 8][4], MatrixDescriptor left, MatrixDescriptor right,
                     Where where = Where::current()) {
  simt::product({.sums = d[0],
                 .columns = n,
                 .add = add,
                 .left = left,
                 .fragments = {},
                 .right = right,
                 .type = dtype_of<T>::value},
                where);
}
template <class T, int n, bool add>
void product_of_rows(float (&d)[n / 8][4], const unsigned (&a)[4], MatrixDescriptor right,
                     Where where = Where::current()) {
  simt::product({.sums = d[0],
                 .columns = n,
                 .add = add,
                 .left = {},
                 .fragments = {a[0], a[1], a[2], a[3]},
                 .right = right,
                 .type = dtype_of<T>::value,
                 .of = simt::Product::Of::own_rows},
                where);
}
template <class T, int eights>
void product_of_weights(float (&d)[eights][4], const unsigned (&a)[4], MatrixDescriptor right,
                        Where where = Where::current()) {
  simt::product({.sums = d[0],
                 .columns = 8 * eights,
                 .add = true,
                 .left = {},
                 .fragments = {a[0], a[1], a[2], a[3]},
                 .right = right,
                 .type = dtype_of<T>::value,
                 .of = simt::Product::Of::weights},
                where);
}
template <class T, int eights>
void product_of_columns(float (&d)[eights][4], MatrixDescriptor left, MatrixDescriptor right,
                        Where where = Where::current()) {
  simt::product({.sums = d[0],
                 .columns = 8 * eights,
                 .add = true,
                 .left = left,
                 .fragments = {},
                 .right = right,
                 .type = dtype_of<T>::value,
                 .of = simt::Product::Of::columns},
                where);
}

}  // namespace megalith::cuda
