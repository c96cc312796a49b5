#include "kernels/elementwise/residual.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const ResidualForward& op) {
  expect_compute(op.name, "h", op.h);
  expect_residual(op.name, "x", op.x, op.h.dtype());
  expect(op.name, "y", op.y, op.x.dtype(), op.x.shape());
  expect(op.name, "h", op.h, op.h.dtype(), op.x.shape());
  if (!op.b.empty()) expect(op.name, "b", op.b, op.h.dtype(), {op.x.cols()});
  expect_dropout(op.name, op.dropout);
  s.launch(op, {2 * numel_of(op.x), bytes_of({op.y, op.x, op.h, op.b})}, {op.y});
}

void launch(Stream& s, const ResidualBackward& op) {
  expect_compute(op.name, "dh", op.dh);
  expect_residual(op.name, "dy", op.dy, op.dh.dtype());
  expect(op.name, "dh", op.dh, op.dh.dtype(), op.dy.shape());
  if (!op.db.empty()) expect(op.name, "db", op.db, DType::f32, {op.dy.cols()});
  expect_dropout(op.name, op.dropout);
  const bool apart = op.dropout.active() || op.dh.dtype() != op.dy.dtype() || op.dh.raw() != op.dy.raw();
  const Tensor written = apart ? op.dh : Tensor();
  s.launch(op, {2 * numel_of(op.dy), 2 * bytes_of(op.db) + bytes_of({written, op.dy})}, {op.dh, op.db});
}

}  // namespace megalith
