#include "kernels/elementwise/transpose.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
constexpr int64_t tile = 32;  // rows and columns that a GPU's block turns over

Cost of_moving(double bytes) { return {.bytes = bytes, .kind = Cost::Kind::update}; }
}  // namespace

void transpose(Stream& s, Tensor y, Tensor x) {
  expect_f32_or_bf16("transpose", "x", x);
  expect_matrix("transpose", "y", y, x.dtype(), x.cols(), x.rows());
  s.launch(
      "transpose", of_moving(bytes_of({y, x})), {y}, [=] { cpu::transpose(y, x); },
      [=](auto queue) { cuda::transpose(queue, y, x); });
}

void join_panels(Stream& s, Tensor y, Tensor panels, const Panels& p) {
  const char* op = "join_panels";
  CHECK(p.size > 0 && p.rows > 0 && (p.count() == 1 || p.rows % tile == 0),
        "{}: panels of {} rows of a matrix of {}, expected one panel or multiples of {} rows", op, p.rows, p.size,
        tile);
  expect_f32_or_bf16(op, "panels", panels);
  expect_numel(op, "panels", panels, panels.dtype(), p.numel());
  expect_matrix(op, "y", y, panels.dtype(), p.size, p.size);
  s.launch(
      op, of_moving(bytes_of({y, panels})), {y}, [=] { cpu::join_panels(y, panels, p); },
      [=](auto queue) { cuda::join_panels(queue, y, panels, p); });
}

}  // namespace megalith
