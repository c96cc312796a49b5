#include "kernels/update/adamw.h"

#include "kernels/tensor/check_args.h"
#include "kernels/update/decide_update.h"

namespace megalith {

void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a, const Rounding& rounding) {
  const char* op = "adamw_update";
  const int64_t n = master.numel();
  expect_state(op, "master", master, n);
  expect_state(op, "m", m, n);
  expect_numel(op, "v", v, m.dtype(), n);
  expect_numel(op, "grad", grad, DType::f32, n);
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  if (!working.empty()) {
    expect_compute(op, "working", working);
    expect_numel(op, "working", working, working.dtype(), n);
  }
  const double bytes = 2 * bytes_of({master, m, v}) + bytes_of({grad, working});
  s.launch(
      op, {.flops = 14.0 * static_cast<double>(n), .bytes = bytes, .kind = Cost::Kind::update}, {master, m, v, working},
      [=] { cpu::adamw_update(master, m, v, working, grad, state, a, rounding); },
      [=](auto queue) { cuda::adamw_update(queue, master, m, v, working, grad, state, a, rounding); });
}

}  // namespace megalith
