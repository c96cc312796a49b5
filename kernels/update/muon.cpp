#include "kernels/update/muon.h"

#include "kernels/tensor/check_args.h"
#include "kernels/update/decide_update.h"

namespace megalith {

namespace {
Cost of_update(double flops, double bytes) { return {.flops = flops, .bytes = bytes, .kind = Cost::Kind::update}; }

template <class Op>
void expect_columns(const Op& op) {
  const Columns& c = op.columns;
  CHECK(0 <= c.begin && 0 < c.count && c.begin + c.count <= c.total, "{}: columns [{}, {}) are outside [0, {})",
        op.name, c.begin, c.begin + c.count, c.total);
  expect_f32_or_bf16(op.name, "part", op.part);
  CHECK(op.part.numel() % c.count == 0, "{}: part has {} elements, expected rows of {}", op.name, op.part.numel(),
        c.count);
  expect_numel(op.name, "whole", op.whole, op.part.dtype(), op.part.numel() / c.count * c.total);
}
}  // namespace

void launch(Stream& s, const MuonMomentum& op) {
  expect_state(op.name, "m", op.m, op.grad.numel());
  expect_dtype(op.name, "grad", op.grad, DType::f32);
  expect_numel(op.name, "state", op.state, DType::f64, UpdateState::numel);
  s.launch(op, of_update(6 * numel_of(op.grad), 2 * bytes_of({op.m, op.grad})), {op.m, op.grad});
}

void launch(Stream& s, const ScaleToUnitNorm& op) {
  expect_f32_or_bf16(op.name, "x", op.x);
  s.launch(op, of_update(3 * numel_of(op.x), 3 * bytes_of(op.x)), {op.x});
}

void launch(Stream& s, const NewtonSchulzPolynomial& op) {
  expect_f32_or_bf16(op.name, "a", op.a);
  expect_matrix(op.name, "a", op.a, op.a.dtype(), op.a.cols(), op.a.cols());
  expect_matrix(op.name, "b", op.b, op.a.dtype(), op.a.cols(), op.a.cols());
  expect_matrix(op.name, "y", op.y, op.a.dtype(), op.a.cols(), op.a.cols());
  s.launch(op, of_update(4 * numel_of(op.y), bytes_of({op.y, op.a, op.b})), {op.y});
}

void launch(Stream& s, const PutColumns& op) {
  expect_columns(op);
  s.launch(op, of_update(0, 2 * bytes_of(op.part)), {op.whole});
}

void launch(Stream& s, const TakeColumns& op) {
  expect_columns(op);
  s.launch(op, of_update(0, 2 * bytes_of(op.part)), {op.part});
}

void launch(Stream& s, const MuonUpdate& op) {
  const int64_t n = op.master.numel();
  expect_state(op.name, "master", op.master, n);
  expect_numel(op.name, "direction", op.direction, DType::f32, n);
  expect_numel(op.name, "state", op.state, DType::f64, UpdateState::numel);
  if (!op.working.empty()) {
    expect_compute(op.name, "working", op.working);
    expect_numel(op.name, "working", op.working, op.working.dtype(), n);
  }
  s.launch(op, of_update(3 * static_cast<double>(n), 2 * bytes_of(op.master) + bytes_of({op.direction, op.working})),
           {op.master, op.working});
}

}  // namespace megalith
