#include "kernels/activation/swiglu.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void swiglu_forward(Stream& s, Tensor y, Tensor x) {
  const char* op = "swiglu_forward";
  expect_compute(op, "y", y);
  expect(op, "x", x, y.dtype(), {y.rows(), 2 * y.cols()});
  s.launch(
      op, {8 * numel_of(y), bytes_of({y, x})}, {y}, [=] { cpu::swiglu_forward(y, x); },
      [=](auto queue) { cuda::swiglu_forward(queue, y, x); });
}

void swiglu_backward(Stream& s, Tensor dx, Tensor dy, Tensor x) {
  const char* op = "swiglu_backward";
  expect_compute(op, "dy", dy);
  expect(op, "x", x, dy.dtype(), {dy.rows(), 2 * dy.cols()});
  expect(op, "dx", dx, dy.dtype(), x.shape());
  s.launch(
      op, {13 * numel_of(dy), bytes_of({dx, dy, x})}, {dx}, [=] { cpu::swiglu_backward(dx, dy, x); },
      [=](auto queue) { cuda::swiglu_backward(queue, dx, dy, x); });
}

}  // namespace megalith
