#include "kernels/elementwise/transpose.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
constexpr int64_t tile = 32;  // rows and columns of the tile that a GPU's block transposes

Cost of_moving(double bytes) { return {.bytes = bytes, .kind = Cost::Kind::update}; }
}  // namespace

void launch(Stream& s, const Transpose& op) {
  expect_f32_or_bf16(op.name, "x", op.x);
  expect_matrix(op.name, "y", op.y, op.x.dtype(), op.x.cols(), op.x.rows());
  s.launch(op, of_moving(bytes_of({op.y, op.x})), {op.y});
}

void launch(Stream& s, const JoinPanels& op) {
  CHECK(op.form.size > 0 && op.form.rows > 0 && (op.form.count() == 1 || op.form.rows % tile == 0),
        "{}: panels of {} rows of a matrix of {}, expected one panel or multiples of {} rows", op.name, op.form.rows,
        op.form.size, tile);
  expect_f32_or_bf16(op.name, "panels", op.panels);
  expect_numel(op.name, "panels", op.panels, op.panels.dtype(), op.form.numel());
  expect_matrix(op.name, "y", op.y, op.panels.dtype(), op.form.size, op.form.size);
  s.launch(op, of_moving(bytes_of({op.y, op.panels})), {op.y});
}

}  // namespace megalith
