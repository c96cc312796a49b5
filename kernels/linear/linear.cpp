#include "kernels/linear/linear.h"

#include "kernels/activation/gelu.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
double gemm_flops(const Tensor& w, int64_t rows) { return 2.0 * static_cast<double>(w.numel() * rows); }
Cost gemm_cost(Cost::Kind kind, double flops, double bytes, const Tensor& product, int64_t k, DType factors) {
  return {flops, bytes, kind, product.rows(), product.cols(), k, factors == DType::f32};
}
}  // namespace

void linear_forward(Stream& s, Tensor y, Tensor x, Tensor w, Tensor b) {
  const char* op = "linear_forward";
  expect_compute(op, "x", x);
  expect_matrix(op, "w", w, x.dtype(), w.rows(), x.cols());
  expect_matrix(op, "y", y, x.dtype(), x.rows(), w.rows());
  if (!b.empty()) expect(op, "b", b, x.dtype(), {w.rows()});
  const double flops = gemm_flops(w, x.rows()) + (b.empty() ? 0 : numel_of(y));
  s.log_gemm(shape_of(linear_forward_call(y, x, w, b)));
  s.launch(
      op, gemm_cost(Cost::Kind::gemm, flops, bytes_of({y, x, w, b}), y, x.cols(), x.dtype()), {y},
      [=, &s] { cpu::linear_forward(s.state<cpu::Gemm>(), y, x, w, b); },
      [=](auto queue) { cuda::linear_forward(queue, y, x, w, b); });
}

void linear_gelu_forward(Stream& s, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b) {
  const char* op = "linear_gelu_forward";
  expect_compute(op, "x", x);
  expect_matrix(op, "w", w, x.dtype(), w.rows(), x.cols());
  expect_matrix(op, "h", h, x.dtype(), x.rows(), w.rows());
  expect(op, "y", y, x.dtype(), h.shape());
  if (!b.empty()) expect(op, "b", b, x.dtype(), {w.rows()});
  const double flops = gemm_flops(w, x.rows()) + ((b.empty() ? 0 : 1) + gelu_forward_flops) * numel_of(y);
  const double bytes = 2 * bytes_of(h) + bytes_of({y, x, w, b});
  s.log_gemm(shape_of(linear_forward_call(h, x, w, b)));
  s.launch(
      op, gemm_cost(Cost::Kind::gemm, flops, bytes, y, x.cols(), x.dtype()), {y, h},
      [=, &s] { cpu::linear_gelu_forward(s.state<cpu::Gemm>(), y, h, x, w, b); },
      [=](auto queue) { cuda::linear_gelu_forward(queue, y, h, x, w, b); });
}

void linear_backward_input(Stream& s, Tensor dx, Tensor dy, Tensor w) {
  const char* op = "linear_backward_input";
  expect_compute(op, "dy", dy);
  expect_matrix(op, "w", w, dy.dtype(), dy.cols(), w.cols());
  expect_matrix(op, "dx", dx, dy.dtype(), dy.rows(), w.cols());
  s.log_gemm(shape_of(linear_backward_input_call(dx, dy, w)));
  s.launch(
      op, gemm_cost(Cost::Kind::gemm, gemm_flops(w, dy.rows()), bytes_of({dx, dy, w}), dx, dy.cols(), dy.dtype()), {dx},
      [=, &s] { cpu::linear_backward_input(s.state<cpu::Gemm>(), dx, dy, w); },
      [=](auto queue) { cuda::linear_backward_input(queue, dx, dy, w); });
}

void linear_backward_input_gelu(Stream& s, Tensor dh, Tensor dy, Tensor w, Tensor h) {
  const char* op = "linear_backward_input_gelu";
  expect_compute(op, "dy", dy);
  expect_matrix(op, "w", w, dy.dtype(), dy.cols(), w.cols());
  expect_matrix(op, "dh", dh, dy.dtype(), dy.rows(), w.cols());
  expect(op, "h", h, dy.dtype(), dh.shape());
  const double flops = gemm_flops(w, dy.rows()) + gelu_backward_flops * numel_of(dh);
  s.log_gemm(shape_of(linear_backward_input_gelu_call(dh, dy, w, h)));
  s.launch(
      op, gemm_cost(Cost::Kind::gemm, flops, bytes_of({dh, dy, w, h}), dh, dy.cols(), dy.dtype()), {dh},
      [=, &s] { cpu::linear_backward_input_gelu(s.state<cpu::Gemm>(), dh, dy, w, h); },
      [=](auto queue) { cuda::linear_backward_input_gelu(queue, dh, dy, w, h); });
}

void linear_backward_bias(Stream& s, Tensor db, Tensor dy) {
  const char* op = "linear_backward_bias";
  expect_compute(op, "dy", dy);
  expect(op, "db", db, DType::f32, {dy.cols()});
  s.launch(
      op, {numel_of(dy), 2 * bytes_of(db) + bytes_of(dy)}, {db}, [=] { cpu::linear_backward_bias(db, dy); },
      [=](auto queue) { cuda::linear_backward_bias(queue, db, dy); });
}

namespace {
// Called only if there is a GEMM library.
bool sums_bias_gradient(const Stream& s, const Tensor& dw, const Tensor& dy, const Tensor& x, bool add) {
  const auto ask = [&](auto queue) { return cuda::sums_bias_gradient(queue, dw, dy, x, add); };
  if constexpr (has_cuda) return s.world() == World::cuda && ask(s.queue());
  return false;
}
}  // namespace

void linear_backward_weight(Stream& s, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add) {
  const char* op = "linear_backward_weight";
  expect_compute(op, "dy", dy);
  expect_matrix(op, "x", x, dy.dtype(), dy.rows(), x.cols());
  expect_matrix(op, "dw", dw, DType::f32, dy.cols(), x.cols());
  if (!db.empty()) expect(op, "db", db, DType::f32, {dy.cols()});
  const bool together = !db.empty() && sums_bias_gradient(s, dw, dy, x, add);
  const Tensor sums = together ? db : Tensor();
  GemmShape shape = shape_of(linear_backward_weight_call(dw, dy, x, add));
  shape.bias_gradient = !db.empty();  // if the library can fuse it
  const double flops = gemm_flops(dw, dy.rows()) + (together ? numel_of(dy) : 0);
  const double bytes = (add ? 2 : 1) * bytes_of(dw) + 2 * bytes_of(sums) + bytes_of({dy, x});
  s.log_gemm(shape);
  s.launch(
      op, gemm_cost(Cost::Kind::gemm_add, flops, bytes, dw, dy.rows(), dy.dtype()), {dw, sums},
      [=, &s] { cpu::linear_backward_weight(s.state<cpu::Gemm>(), dw, dy, x, add); },
      [=](auto queue) { cuda::linear_backward_weight(queue, dw, sums, dy, x, add); });
  if (!db.empty() && !together) linear_backward_bias(s, db, dy);
}

}  // namespace megalith
