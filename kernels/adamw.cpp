#include "kernels/adamw.h"

#include "kernels/check_args.h"

namespace megalith {

void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale,
                  const AdamW& a) {
  const char* op = "adamw_update";
  const int64_t n = master.numel();
  expect_dtype(op, "master", master, DType::f32);
  expect_numel(op, "m", m, DType::f32, n);
  expect_numel(op, "v", v, DType::f32, n);
  expect_numel(op, "grad", grad, DType::f32, n);
  expect_numel(op, "scale", scale, DType::f64, 1);
  if (!working.empty()) {
    expect_compute(op, "working", working);
    expect_numel(op, "working", working, working.dtype(), n);
  }
  CHECK(a.update >= 1, "{}: update {}; updates count from 1", op, a.update);
  const double bytes = static_cast<double>(2 * (master.bytes() + m.bytes() + v.bytes()) + grad.bytes() +
                                           working.bytes() + scale.bytes());
  s.launch(
      "adamw_update", {.flops = 14.0 * static_cast<double>(n), .bytes = bytes, .kind = Cost::Kind::update},
      [=] { cpu::adamw_update(master, m, v, working, grad, scale, a); },
      [=](auto queue) { cuda::adamw_update(queue, master, m, v, working, grad, scale, a); });
}

}  // namespace megalith
