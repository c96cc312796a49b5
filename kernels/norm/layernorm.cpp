#include "kernels/norm/layernorm.h"

#include <string_view>
#include <utility>

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const LayerNormForward& op) {
  expect_compute(op.name, "y", op.y);
  expect_residual(op.name, "x", op.x, op.y.dtype());
  expect(op.name, "y", op.y, op.y.dtype(), op.x.shape());
  expect(op.name, "stat", op.stat, DType::f32, {op.x.rows(), 2});
  expect(op.name, "w", op.w, op.y.dtype(), {op.x.cols()});
  if (!op.b.empty()) expect(op.name, "b", op.b, op.y.dtype(), {op.x.cols()});
  expect_largest(op.name, op.largest, op.y);
  s.launch(op, {8 * numel_of(op.x), bytes_of({op.y, op.stat, op.x, op.w, op.b})}, {op.y, op.stat, op.largest.amax});
}

void launch(Stream& s, const LayerNormBackward& op) {
  expect_compute(op.name, "dy", op.dy);
  expect_residual(op.name, "dx", op.dx, op.dy.dtype());
  for (const auto& [name, t] : {std::pair{"dw", op.dw}, {"db", op.db}})
    if (!t.empty()) expect(op.name, name, t, DType::f32, {op.dx.cols()});
  expect(op.name, "dy", op.dy, op.dy.dtype(), op.dx.shape());
  expect(op.name, "x", op.x, op.dx.dtype(), op.dx.shape());
  expect(op.name, "stat", op.stat, DType::f32, {op.dx.rows(), 2});
  expect(op.name, "w", op.w, op.dy.dtype(), {op.dx.cols()});
  s.launch(op, {15 * numel_of(op.x), 2 * bytes_of({op.dx, op.dw, op.db}) + bytes_of({op.dy, op.x, op.stat, op.w})},
           {op.dx, op.dw, op.db});
}

void launch(Stream& s, const ResidualLayerNormForward& op) {
  expect_compute(op.name, "h", op.h);
  expect_residual(op.name, "x", op.x, op.h.dtype());
  expect(op.name, "y", op.y, op.x.dtype(), op.x.shape());
  for (const auto& [name, t] : {std::pair{"ln", op.ln}, {"h", op.h}})
    expect(op.name, name, t, op.h.dtype(), op.x.shape());
  for (const auto& [name, t] : {std::pair{"h_b", op.h_b}, {"w", op.w}, {"b", op.b}})
    if (name == std::string_view("w") || !t.empty()) expect(op.name, name, t, op.h.dtype(), {op.x.cols()});
  expect(op.name, "stat", op.stat, DType::f32, {op.x.rows(), 2});
  expect_dropout(op.name, op.dropout);
  expect_largest(op.name, op.largest, op.ln);
  s.launch(op, {10 * numel_of(op.x), bytes_of({op.y, op.ln, op.stat, op.x, op.h, op.h_b, op.w, op.b})},
           {op.y, op.ln, op.stat, op.largest.amax});
}

void launch(Stream& s, const ResidualLayerNormBackward& op) {
  expect_compute(op.name, "dln", op.dln);
  expect_residual(op.name, "dx", op.dx, op.dln.dtype());
  expect(op.name, "y", op.y, op.dx.dtype(), op.dx.shape());
  for (const auto& [name, t] : {std::pair{"dh", op.dh}, {"dln", op.dln}})
    expect(op.name, name, t, op.dln.dtype(), op.dx.shape());
  for (const auto& [name, t] : {std::pair{"dh_b", op.dh_b}, {"dw", op.dw}, {"db", op.db}})
    if (!t.empty()) expect(op.name, name, t, DType::f32, {op.dx.cols()});
  expect(op.name, "stat", op.stat, DType::f32, {op.dx.rows(), 2});
  expect(op.name, "w", op.w, op.dln.dtype(), {op.dx.cols()});
  expect_dropout(op.name, op.dropout);
  // In the dry world, tensors of two arenas may have the same address.
  CHECK(s.world() == World::dry || !op.dropout.active() || op.dh.raw() != op.dx.raw(),
        "{}: with dropout dh must not be dx", op.name);
  const bool apart = op.dropout.active() || op.dh.dtype() != op.dx.dtype() || op.dh.raw() != op.dx.raw();
  const Tensor written = apart ? op.dh : Tensor();
  const double bytes = 2 * bytes_of({op.dx, op.dh_b, op.dw, op.db}) + bytes_of({written, op.dln, op.y, op.stat, op.w});
  s.launch(op, {17 * numel_of(op.y), bytes}, {op.dx, op.dh, op.dh_b, op.dw, op.db});
}

}  // namespace megalith
