#include "kernels/layernorm.h"

#include "kernels/check_args.h"
#include "kernels/ops_cpu.h"
#include "kernels/ops_cuda.h"

namespace megalith {

void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b) {
  const char* op = "layernorm_forward";
  expect_compute(op, "x", x);
  expect(op, "y", y, x.dtype(), x.shape());
  expect(op, "stat", stat, DType::f32, {x.rows(), 2});
  expect(op, "w", w, x.dtype(), {x.cols()});
  expect(op, "b", b, x.dtype(), {x.cols()});
  const auto n = static_cast<double>(x.numel());
  const double bytes = static_cast<double>(y.bytes() + stat.bytes() + x.bytes() + w.bytes() + b.bytes());
  s.launch(
      "layernorm_forward", {.flops = 8 * n, .bytes = bytes}, [=] { cpu::layernorm_forward(y, stat, x, w, b); },
      [=](auto queue) { cuda::layernorm_forward(queue, y, stat, x, w, b); });
}

void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w) {
  const char* op = "layernorm_backward";
  expect_compute(op, "dx", dx);
  expect(op, "dw", dw, DType::f32, {dx.cols()});
  expect(op, "db", db, DType::f32, {dx.cols()});
  expect(op, "dy", dy, dx.dtype(), dx.shape());
  expect(op, "x", x, dx.dtype(), dx.shape());
  expect(op, "stat", stat, DType::f32, {dx.rows(), 2});
  expect(op, "w", w, dx.dtype(), {dx.cols()});
  const auto n = static_cast<double>(x.numel());
  const double bytes = static_cast<double>(2 * (dx.bytes() + dw.bytes() + db.bytes()) + dy.bytes() + x.bytes() +
                                           stat.bytes() + w.bytes());
  s.launch(
      "layernorm_backward", {.flops = 15 * n, .bytes = bytes},
      [=] { cpu::layernorm_backward(dx, dw, db, dy, x, stat, w); },
      [=](auto queue) { cuda::layernorm_backward(queue, dx, dw, db, dy, x, stat, w); });
}

}  // namespace megalith
