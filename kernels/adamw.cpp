#include "kernels/adamw.h"

#include "kernels/check_args.h"

namespace megalith {

void decide_update(Stream& s, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a) {
  const char* op = "decide_update";
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  expect_dtype(op, "sums", sums, DType::f64);
  CHECK(sums.numel() >= 1, "{}: sums has no elements, expected the loss at least", op);
  s.launch(
      "decide_update",
      {.flops = static_cast<double>(sums.numel()),
       .bytes = bytes_of(sums) + 2 * bytes_of(state),
       .kind = Cost::Kind::update},
      [=] { cpu::decide_update(state, sums, rules, a); },
      [=](auto queue) { cuda::decide_update(queue, state, sums, rules, a); });
}

void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a) {
  const char* op = "adamw_update";
  const int64_t n = master.numel();
  expect_dtype(op, "master", master, DType::f32);
  expect_numel(op, "m", m, DType::f32, n);
  expect_numel(op, "v", v, DType::f32, n);
  expect_numel(op, "grad", grad, DType::f32, n);
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  if (!working.empty()) {
    expect_compute(op, "working", working);
    expect_numel(op, "working", working, working.dtype(), n);
  }
  const double bytes =
      static_cast<double>(2 * (master.bytes() + m.bytes() + v.bytes()) + grad.bytes() + working.bytes());
  s.launch(
      "adamw_update", {.flops = 14.0 * static_cast<double>(n), .bytes = bytes, .kind = Cost::Kind::update},
      [=] { cpu::adamw_update(master, m, v, working, grad, state, a); },
      [=](auto queue) { cuda::adamw_update(queue, master, m, v, working, grad, state, a); });
}

}  // namespace megalith
