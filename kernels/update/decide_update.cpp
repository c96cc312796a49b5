#include "kernels/update/decide_update.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void decide_update(Stream& s, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a) {
  const char* op = "decide_update";
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  expect_dtype(op, "sums", sums, DType::f64);
  CHECK(sums.numel() >= 1, "{}: sums has no elements, expected the loss at least", op);
  s.launch(
      op, {.flops = numel_of(sums), .bytes = bytes_of(sums) + 2 * bytes_of(state), .kind = Cost::Kind::update}, {state},
      [=] { cpu::decide_update(state, sums, rules, a); },
      [=](auto queue) { cuda::decide_update(queue, state, sums, rules, a); });
}

}  // namespace megalith
