#include "kernels/norm/layernorm.h"

#include <string_view>
#include <utility>

#include "kernels/tensor/check_args.h"

namespace megalith {

void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b, const NormRule& rule) {
  const char* op = "layernorm_forward";
  expect_compute(op, "y", y);
  expect_residual(op, "x", x, y.dtype());
  expect(op, "y", y, y.dtype(), x.shape());
  expect(op, "stat", stat, DType::f32, {x.rows(), 2});
  expect(op, "w", w, y.dtype(), {x.cols()});
  if (!b.empty()) expect(op, "b", b, y.dtype(), {x.cols()});
  s.launch(
      op, {8 * numel_of(x), bytes_of({y, stat, x, w, b})}, {y, stat},
      [=] { cpu::layernorm_forward(y, stat, x, w, b, rule); },
      [=](auto queue) { cuda::layernorm_forward(queue, y, stat, x, w, b, rule); });
}

void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w,
                        const NormRule& rule) {
  const char* op = "layernorm_backward";
  expect_compute(op, "dy", dy);
  expect_residual(op, "dx", dx, dy.dtype());
  for (const auto& [name, t] : {std::pair{"dw", dw}, {"db", db}})
    if (!t.empty()) expect(op, name, t, DType::f32, {dx.cols()});
  expect(op, "dy", dy, dy.dtype(), dx.shape());
  expect(op, "x", x, dx.dtype(), dx.shape());
  expect(op, "stat", stat, DType::f32, {dx.rows(), 2});
  expect(op, "w", w, dy.dtype(), {dx.cols()});
  s.launch(
      op, {15 * numel_of(x), 2 * bytes_of({dx, dw, db}) + bytes_of({dy, x, stat, w})}, {dx, dw, db},
      [=] { cpu::layernorm_backward(dx, dw, db, dy, x, stat, w, rule); },
      [=](auto queue) { cuda::layernorm_backward(queue, dx, dw, db, dy, x, stat, w, rule); });
}

void residual_layernorm_forward(Stream& s, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d, const NormRule& rule) {
  const char* op = "residual_layernorm_forward";
  expect_compute(op, "h", h);
  expect_residual(op, "x", x, h.dtype());
  expect(op, "y", y, x.dtype(), x.shape());
  for (const auto& [name, t] : {std::pair{"ln", ln}, {"h", h}}) expect(op, name, t, h.dtype(), x.shape());
  for (const auto& [name, t] : {std::pair{"h_b", h_b}, {"w", w}, {"b", b}})
    if (name == std::string_view("w") || !t.empty()) expect(op, name, t, h.dtype(), {x.cols()});
  expect(op, "stat", stat, DType::f32, {x.rows(), 2});
  expect_dropout(op, d);
  s.launch(
      op, {10 * numel_of(x), bytes_of({y, ln, stat, x, h, h_b, w, b})}, {y, ln, stat},
      [=] { cpu::residual_layernorm_forward(y, ln, stat, x, h, h_b, w, b, rule, d); },
      [=](auto queue) { cuda::residual_layernorm_forward(queue, y, ln, stat, x, h, h_b, w, b, rule, d); });
}

void residual_layernorm_backward(Stream& s, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d, const NormRule& rule) {
  const char* op = "residual_layernorm_backward";
  expect_compute(op, "dln", dln);
  expect_residual(op, "dx", dx, dln.dtype());
  expect(op, "y", y, dx.dtype(), dx.shape());
  for (const auto& [name, t] : {std::pair{"dh", dh}, {"dln", dln}}) expect(op, name, t, dln.dtype(), dx.shape());
  for (const auto& [name, t] : {std::pair{"dh_b", dh_b}, {"dw", dw}, {"db", db}})
    if (!t.empty()) expect(op, name, t, DType::f32, {dx.cols()});
  expect(op, "stat", stat, DType::f32, {dx.rows(), 2});
  expect(op, "w", w, dln.dtype(), {dx.cols()});
  expect_dropout(op, d);
  // Tensors of two arenas may share an address in the dry world.
  CHECK(s.world() == World::dry || !d.active() || dh.raw() != dx.raw(), "{}: with dropout dh must not be dx", op);
  const bool apart = d.active() || dh.dtype() != dx.dtype() || dh.raw() != dx.raw();
  const Tensor written = apart ? dh : Tensor();
  const double bytes = 2 * bytes_of({dx, dh_b, dw, db}) + bytes_of({written, dln, y, stat, w});
  s.launch(
      op, {17 * numel_of(y), bytes}, {dx, dh, dh_b, dw, db},
      [=] { cpu::residual_layernorm_backward(dx, dh, dh_b, dw, db, dln, y, stat, w, rule, d); },
      [=](auto queue) { cuda::residual_layernorm_backward(queue, dx, dh, dh_b, dw, db, dln, y, stat, w, rule, d); });
}

}  // namespace megalith
