#include "kernels/activation/gelu.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const GeluForward& op) {
  expect_compute(op.name, "x", op.x);
  expect(op.name, "y", op.y, op.x.dtype(), op.x.shape());
  expect_largest(op.name, op.largest, op.y);
  s.launch(op, {gelu_forward_flops * numel_of(op.x), bytes_of({op.x, op.y})}, {op.y, op.largest.amax});
}

void launch(Stream& s, const GeluBackward& op) {
  expect_compute(op.name, "x", op.x);
  expect(op.name, "dx", op.dx, op.x.dtype(), op.x.shape());
  expect(op.name, "dy", op.dy, op.x.dtype(), op.x.shape());
  expect_largest(op.name, op.largest, op.dx);
  s.launch(op, {gelu_backward_flops * numel_of(op.x), bytes_of({op.dx, op.dy, op.x})}, {op.dx, op.largest.amax});
}

}  // namespace megalith
