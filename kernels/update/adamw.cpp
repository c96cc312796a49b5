#include "kernels/update/adamw.h"

#include "kernels/tensor/check_args.h"
#include "kernels/update/decide_update.h"

namespace megalith {

void launch(Stream& s, const AdamWUpdate& op) {
  const int64_t n = op.master.numel();
  expect_state(op.name, "master", op.master, n);
  expect_state(op.name, "m", op.m, n);
  expect_numel(op.name, "v", op.v, op.m.dtype(), n);
  expect_numel(op.name, "grad", op.grad, DType::f32, n);
  expect_numel(op.name, "state", op.state, DType::f64, UpdateState::numel);
  if (!op.working.empty()) {
    expect_compute(op.name, "working", op.working);
    expect_numel(op.name, "working", op.working, op.working.dtype(), n);
  }
  const double bytes = 2 * bytes_of({op.master, op.m, op.v}) + bytes_of({op.grad, op.working});
  s.launch(op, {.flops = 14.0 * static_cast<double>(n), .bytes = bytes, .kind = Cost::Kind::update},
           {op.master, op.m, op.v, op.working});
}

}  // namespace megalith
