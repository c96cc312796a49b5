#include "kernels/activation/gelu.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void gelu_forward(Stream& s, Tensor y, Tensor x, GeluForm form) {
  expect_compute("gelu_forward", "x", x);
  expect("gelu_forward", "y", y, x.dtype(), x.shape());
  s.launch(
      "gelu_forward", {gelu_forward_flops * numel_of(x), bytes_of({x, y})}, {y}, [=] { cpu::gelu_forward(y, x, form); },
      [=](auto queue) { cuda::gelu_forward(queue, y, x, form); });
}

void gelu_backward(Stream& s, Tensor dx, Tensor dy, Tensor x, GeluForm form) {
  expect_compute("gelu_backward", "x", x);
  expect("gelu_backward", "dx", dx, x.dtype(), x.shape());
  expect("gelu_backward", "dy", dy, x.dtype(), x.shape());
  s.launch(
      "gelu_backward", {gelu_backward_flops * numel_of(x), bytes_of({dx, dy, x})}, {dx},
      [=] { cpu::gelu_backward(dx, dy, x, form); }, [=](auto queue) { cuda::gelu_backward(queue, dx, dy, x, form); });
}

}  // namespace megalith
