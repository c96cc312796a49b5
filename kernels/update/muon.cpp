#include "kernels/update/muon.h"

#include "kernels/tensor/check_args.h"
#include "kernels/update/decide_update.h"

namespace megalith {

namespace {
Cost of_update(double flops, double bytes) { return {.flops = flops, .bytes = bytes, .kind = Cost::Kind::update}; }

void expect_columns(const char* op, const Tensor& whole, const Tensor& part, const Columns& c) {
  CHECK(0 <= c.begin && 0 < c.count && c.begin + c.count <= c.total, "{}: columns [{}, {}) are outside [0, {})", op,
        c.begin, c.begin + c.count, c.total);
  expect_f32_or_bf16(op, "part", part);
  CHECK(part.numel() % c.count == 0, "{}: part has {} elements, expected rows of {}", op, part.numel(), c.count);
  expect_numel(op, "whole", whole, part.dtype(), part.numel() / c.count * c.total);
}
}  // namespace

void muon_momentum(Stream& s, Tensor m, Tensor grad, Tensor state, const Rounding& rounding) {
  const char* op = "muon_momentum";
  expect_state(op, "m", m, grad.numel());
  expect_dtype(op, "grad", grad, DType::f32);
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  s.launch(
      op, of_update(6 * numel_of(grad), 2 * bytes_of({m, grad})), {m, grad},
      [=] { cpu::muon_momentum(m, grad, state, rounding); },
      [=](auto queue) { cuda::muon_momentum(queue, m, grad, state, rounding); });
}

void scale_to_unit_norm(Stream& s, Tensor x) {
  const char* op = "scale_to_unit_norm";
  expect_f32_or_bf16(op, "x", x);
  s.launch(
      op, of_update(3 * numel_of(x), 3 * bytes_of(x)), {x}, [=] { cpu::scale_to_unit_norm(x); },
      [=](auto queue) { cuda::scale_to_unit_norm(queue, x); });
}

void newton_schulz_polynomial(Stream& s, Tensor y, Tensor a, Tensor b) {
  const char* op = "newton_schulz_polynomial";
  expect_f32_or_bf16(op, "a", a);
  expect_matrix(op, "a", a, a.dtype(), a.cols(), a.cols());
  expect_matrix(op, "b", b, a.dtype(), a.cols(), a.cols());
  expect_matrix(op, "y", y, a.dtype(), a.cols(), a.cols());
  s.launch(
      op, of_update(4 * numel_of(y), bytes_of({y, a, b})), {y}, [=] { cpu::newton_schulz_polynomial(y, a, b); },
      [=](auto queue) { cuda::newton_schulz_polynomial(queue, y, a, b); });
}

void put_columns(Stream& s, Tensor whole, Tensor part, const Columns& c) {
  expect_columns("put_columns", whole, part, c);
  s.launch(
      "put_columns", of_update(0, 2 * bytes_of(part)), {whole}, [=] { cpu::put_columns(whole, part, c); },
      [=](auto queue) { cuda::put_columns(queue, whole, part, c); });
}

void take_columns(Stream& s, Tensor part, Tensor whole, const Columns& c) {
  expect_columns("take_columns", whole, part, c);
  s.launch(
      "take_columns", of_update(0, 2 * bytes_of(part)), {part}, [=] { cpu::take_columns(part, whole, c); },
      [=](auto queue) { cuda::take_columns(queue, part, whole, c); });
}

void muon_update(Stream& s, Tensor master, Tensor working, Tensor direction, Tensor state, const Muon& muon,
                 const Rounding& rounding) {
  const char* op = "muon_update";
  const int64_t n = master.numel();
  expect_state(op, "master", master, n);
  expect_numel(op, "direction", direction, DType::f32, n);
  expect_numel(op, "state", state, DType::f64, UpdateState::numel);
  if (!working.empty()) {
    expect_compute(op, "working", working);
    expect_numel(op, "working", working, working.dtype(), n);
  }
  s.launch(
      op, of_update(3 * static_cast<double>(n), 2 * bytes_of(master) + bytes_of({direction, working})),
      {master, working}, [=] { cpu::muon_update(master, working, direction, state, muon, rounding); },
      [=](auto queue) { cuda::muon_update(queue, master, working, direction, state, muon, rounding); });
}

}  // namespace megalith
