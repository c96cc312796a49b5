#include "kernels/update/decide_update.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const DecideUpdate& op) {
  expect_numel(op.name, "state", op.state, DType::f64, UpdateState::numel);
  expect_dtype(op.name, "sums", op.sums, DType::f64);
  CHECK(op.sums.numel() >= 1, "{}: sums has no elements, expected at least the loss", op.name);
  s.launch(
      op, {.flops = numel_of(op.sums), .bytes = bytes_of(op.sums) + 2 * bytes_of(op.state), .kind = Cost::Kind::update},
      {op.state});
}

}  // namespace megalith
