#include "kernels/gelu.h"

#include "kernels/check_args.h"

namespace megalith {

void gelu_forward(Stream& s, Tensor y, Tensor x) {
  expect_compute("gelu_forward", "x", x);
  expect("gelu_forward", "y", y, x.dtype(), x.shape());
  const auto n = static_cast<double>(x.numel());
  const double bytes = static_cast<double>(x.bytes() + y.bytes());
  s.launch(
      "gelu_forward", {.flops = gelu_forward_flops * n, .bytes = bytes}, {y}, [=] { cpu::gelu_forward(y, x); },
      [=](auto queue) { cuda::gelu_forward(queue, y, x); });
}

void gelu_backward(Stream& s, Tensor dx, Tensor dy, Tensor x) {
  expect_compute("gelu_backward", "x", x);
  expect("gelu_backward", "dx", dx, x.dtype(), x.shape());
  expect("gelu_backward", "dy", dy, x.dtype(), x.shape());
  const auto n = static_cast<double>(x.numel());
  const double bytes = static_cast<double>(dx.bytes() + dy.bytes() + x.bytes());
  s.launch(
      "gelu_backward", {.flops = gelu_backward_flops * n, .bytes = bytes}, {dx}, [=] { cpu::gelu_backward(dx, dy, x); },
      [=](auto queue) { cuda::gelu_backward(queue, dx, dy, x); });
}

}  // namespace megalith
