// Products of a warpgroup on the machine of simt.h. A product that is enqueued takes its fragments with it, leaves NaN
// in its sums, and reads its matrices when a wait says that it must be done: so sums touched too early give wrong
// numbers, and matrices overwritten before a barrier after that wait are a race. It finds these faults in addition to
// those of simt.h:
//
//   - threads of a warpgroup that do not come to the same product, or bring different descriptors;
//   - a product with no products_begin since the last wait;
//   - a matrix that its writers have not published before the barrier, or that does not begin where the instruction
//     can read it.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/tensor/tensor.h"
#include "tests/simt/simt.h"

namespace megalith::simt {

// A matrix descriptor's fields, in bytes: where it begins in shared memory, and from one panel to the next.
struct MatrixDescriptor {
  uint32_t begin = 0, panel = 0;
  bool operator==(const MatrixDescriptor&) const = default;
};
MatrixDescriptor matrix_descriptor(const void* p, int panel);
MatrixDescriptor moved_by(int bytes, MatrixDescriptor m);

struct Product {
  float* sums;  // (columns / 8, 4), of this thread
  int columns;
  bool add;
  MatrixDescriptor left;
  std::array<unsigned, 4> fragments;
  MatrixDescriptor right;
  DType type;  // of both factors
  // rows: both factors by rows, along the depth; own_rows: the same with the left in fragments; weights: left in
  // fragments, right by rows of depth; columns: both by rows of depth.
  enum class Of : uint8_t { rows, own_rows, weights, columns } of = Of::rows;
  bool in_fragments() const { return of == Of::own_rows || of == Of::weights; }
  bool right_by_rows() const { return of == Of::rows || of == Of::own_rows; }
};
void product(const Product& mine, Where where);
void products_begin(Where where);
void products_commit(Where where);
void products_wait(int but, Where where);

}  // namespace megalith::simt
