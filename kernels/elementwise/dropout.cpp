#include "kernels/elementwise/dropout.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void dropout(Stream& s, Tensor y, Tensor x, const Dropout& d) {
  expect_compute("dropout", "x", x);
  expect("dropout", "y", y, x.dtype(), x.shape());
  expect_dropout("dropout", d);
  s.launch(
      "dropout", {.flops = numel_of(x), .bytes = bytes_of({x, y})}, {y}, [=] { cpu::dropout(y, x, d); },
      [=](auto queue) { cuda::dropout(queue, y, x, d); });
}

void write_drawn(Tensor drawn, const Dropout& d) {
  const auto write = [&](int64_t row, uint64_t number) {
    drawn.data<int32_t>()[2 * row] = static_cast<int32_t>(static_cast<uint32_t>(number));
    drawn.data<int32_t>()[2 * row + 1] = static_cast<int32_t>(static_cast<uint32_t>(number >> 32));
  };
  write(0, static_cast<uint64_t>(d.first_row));
  Dropout at = d;
  for (at.site = 0; at.site + 1 < drawn.rows(); at.site++) write(1 + at.site, dropout_key(at));
}

}  // namespace megalith
