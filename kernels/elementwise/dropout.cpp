#include "kernels/elementwise/dropout.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const ApplyDropout& op) {
  expect_compute(op.name, "x", op.x);
  expect(op.name, "y", op.y, op.x.dtype(), op.x.shape());
  expect_dropout(op.name, op.dropout);
  s.launch(op, {.flops = numel_of(op.x), .bytes = bytes_of({op.x, op.y})}, {op.y});
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
