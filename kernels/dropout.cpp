#include "kernels/dropout.h"

#include "kernels/check_args.h"

namespace megalith {

void dropout(Stream& s, Tensor y, Tensor x, const Dropout& d) {
  expect_compute("dropout", "x", x);
  expect("dropout", "y", y, x.dtype(), x.shape());
  expect_dropout("dropout", d);
  s.launch(
      "dropout", {.flops = static_cast<double>(x.numel()), .bytes = static_cast<double>(x.bytes() + y.bytes())}, {y},
      [=] { cpu::dropout(y, x, d); }, [=](auto queue) { cuda::dropout(queue, y, x, d); });
}

}  // namespace megalith
