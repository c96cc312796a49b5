#include "kernels/elementwise/residual.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void residual_forward(Stream& s, Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d) {
  const char* op = "residual_forward";
  expect_compute(op, "h", h);
  expect_residual(op, "x", x, h.dtype());
  expect(op, "y", y, x.dtype(), x.shape());
  expect(op, "h", h, h.dtype(), x.shape());
  if (!b.empty()) expect(op, "b", b, h.dtype(), {x.cols()});
  expect_dropout(op, d);
  s.launch(
      op, {2 * numel_of(x), bytes_of({y, x, h, b})}, {y}, [=] { cpu::residual_forward(y, x, h, b, d); },
      [=](auto queue) { cuda::residual_forward(queue, y, x, h, b, d); });
}

void residual_backward(Stream& s, Tensor dh, Tensor db, Tensor dy, const Dropout& d) {
  const char* op = "residual_backward";
  expect_compute(op, "dh", dh);
  expect_residual(op, "dy", dy, dh.dtype());
  expect(op, "dh", dh, dh.dtype(), dy.shape());
  if (!db.empty()) expect(op, "db", db, DType::f32, {dy.cols()});
  expect_dropout(op, d);
  const bool apart = d.active() || dh.dtype() != dy.dtype() || dh.raw() != dy.raw();
  const Tensor written = apart ? dh : Tensor();
  s.launch(
      op, {2 * numel_of(dy), 2 * bytes_of(db) + bytes_of({written, dy})}, {dh, db},
      [=] { cpu::residual_backward(dh, db, dy, d); },
      [=](auto queue) { cuda::residual_backward(queue, dh, db, dy, d); });
}

}  // namespace megalith
