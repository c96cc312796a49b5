#include "kernels/activation/swiglu.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const SwigluForward& op) {
  expect_compute(op.name, "y", op.y);
  expect(op.name, "x", op.x, op.y.dtype(), {op.y.rows(), 2 * op.y.cols()});
  expect_largest(op.name, op.largest, op.y);
  s.launch(op, {8 * numel_of(op.y), bytes_of({op.y, op.x})}, {op.y, op.largest.amax});
}

void launch(Stream& s, const SwigluBackward& op) {
  expect_compute(op.name, "dy", op.dy);
  expect(op.name, "x", op.x, op.dy.dtype(), {op.dy.rows(), 2 * op.dy.cols()});
  expect(op.name, "dx", op.dx, op.dy.dtype(), op.x.shape());
  expect_largest(op.name, op.largest, op.dx);
  s.launch(op, {13 * numel_of(op.dy), bytes_of({op.dx, op.dy, op.x})}, {op.dx, op.largest.amax});
}

}  // namespace megalith
