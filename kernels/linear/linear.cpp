#include "kernels/linear/linear.h"

#include "kernels/activation/gelu.h"
#include "kernels/linear/gemm_call.h"
#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
double gemm_flops(const Tensor& w, int64_t rows) { return 2.0 * static_cast<double>(w.numel() * rows); }
Cost gemm_cost(Cost::Kind kind, double flops, double bytes, const Tensor& product, int64_t k, DType factors) {
  return {flops, bytes, kind, product.rows(), product.cols(), k, factors == DType::f32};
}
}  // namespace

void launch(Stream& s, const LinearForward& op) {
  expect_compute(op.name, "x", op.x);
  expect_matrix(op.name, "w", op.w, op.x.dtype(), op.w.rows(), op.x.cols());
  expect_matrix(op.name, "y", op.y, op.x.dtype(), op.x.rows(), op.w.rows());
  if (!op.b.empty()) expect(op.name, "b", op.b, op.x.dtype(), {op.w.rows()});
  const double flops = gemm_flops(op.w, op.x.rows()) + (op.b.empty() ? 0 : numel_of(op.y));
  s.log_gemm(shape_of(gemm_call(op)));
  s.launch(op, gemm_cost(Cost::Kind::gemm, flops, bytes_of({op.y, op.x, op.w, op.b}), op.y, op.x.cols(), op.x.dtype()),
           {op.y});
}

void launch(Stream& s, const LinearGeluForward& op) {
  expect_compute(op.name, "x", op.x);
  expect_matrix(op.name, "w", op.w, op.x.dtype(), op.w.rows(), op.x.cols());
  expect_matrix(op.name, "h", op.h, op.x.dtype(), op.x.rows(), op.w.rows());
  expect(op.name, "y", op.y, op.x.dtype(), op.h.shape());
  if (!op.b.empty()) expect(op.name, "b", op.b, op.x.dtype(), {op.w.rows()});
  const double flops = gemm_flops(op.w, op.x.rows()) + ((op.b.empty() ? 0 : 1) + gelu_forward_flops) * numel_of(op.y);
  const double bytes = 2 * bytes_of(op.h) + bytes_of({op.y, op.x, op.w, op.b});
  s.log_gemm(shape_of(gemm_call(LinearForward{.y = op.h, .x = op.x, .w = op.w, .b = op.b})));
  s.launch(op, gemm_cost(Cost::Kind::gemm, flops, bytes, op.y, op.x.cols(), op.x.dtype()), {op.y, op.h});
}

void launch(Stream& s, const LinearBackwardInput& op) {
  expect_compute(op.name, "dy", op.dy);
  expect_matrix(op.name, "w", op.w, op.dy.dtype(), op.dy.cols(), op.w.cols());
  expect_matrix(op.name, "dx", op.dx, op.dy.dtype(), op.dy.rows(), op.w.cols());
  s.log_gemm(shape_of(gemm_call(op)));
  const double flops = gemm_flops(op.w, op.dy.rows()), bytes = bytes_of({op.dx, op.dy, op.w});
  s.launch(op, gemm_cost(Cost::Kind::gemm, flops, bytes, op.dx, op.dy.cols(), op.dy.dtype()), {op.dx});
}

void launch(Stream& s, const LinearBackwardInputGelu& op) {
  expect_compute(op.name, "dy", op.dy);
  expect_matrix(op.name, "w", op.w, op.dy.dtype(), op.dy.cols(), op.w.cols());
  expect_matrix(op.name, "dh", op.dh, op.dy.dtype(), op.dy.rows(), op.w.cols());
  expect(op.name, "h", op.h, op.dy.dtype(), op.dh.shape());
  const double flops = gemm_flops(op.w, op.dy.rows()) + gelu_backward_flops * numel_of(op.dh);
  s.log_gemm(shape_of(gemm_call(op)));
  const double bytes = bytes_of({op.dh, op.dy, op.w, op.h});
  s.launch(op, gemm_cost(Cost::Kind::gemm, flops, bytes, op.dh, op.dy.cols(), op.dy.dtype()), {op.dh});
}

void launch(Stream& s, const LinearBackwardBias& op) {
  expect_compute(op.name, "dy", op.dy);
  expect(op.name, "db", op.db, DType::f32, {op.dy.cols()});
  s.launch(op, {numel_of(op.dy), 2 * bytes_of(op.db) + bytes_of(op.dy)}, {op.db});
}

namespace {
// Requires a GEMM library.
bool sums_bias_gradient(const Stream& s, const LinearBackwardWeight& op) {
  const auto ask = [&](auto queue) { return cuda::sums_bias_gradient(queue, op); };
  if constexpr (has_cuda) return s.world() == World::cuda && ask(s.queue());
  return false;
}
}  // namespace

void launch(Stream& s, const LinearBackwardWeight& op) {
  expect_compute(op.name, "dy", op.dy);
  expect_matrix(op.name, "x", op.x, op.dy.dtype(), op.dy.rows(), op.x.cols());
  expect_matrix(op.name, "dw", op.dw, DType::f32, op.dy.cols(), op.x.cols());
  if (!op.db.empty()) expect(op.name, "db", op.db, DType::f32, {op.dy.cols()});
  const bool together = !op.db.empty() && sums_bias_gradient(s, op);
  LinearBackwardWeight product = op;
  if (!together) product.db = Tensor();
  GemmShape shape = shape_of(gemm_call(op));
  shape.bias_gradient = !op.db.empty();  // set if the library can fuse it
  const double flops = gemm_flops(op.dw, op.dy.rows()) + (together ? numel_of(op.dy) : 0);
  const double bytes = (op.add ? 2 : 1) * bytes_of(op.dw) + 2 * bytes_of(product.db) + bytes_of({op.dy, op.x});
  s.log_gemm(shape);
  s.launch(product, gemm_cost(Cost::Kind::gemm_add, flops, bytes, op.dw, op.dy.rows(), op.dy.dtype()),
           {op.dw, product.db});
  if (!op.db.empty() && !together) launch(s, LinearBackwardBias{.db = op.db, .dy = op.dy});
}

}  // namespace megalith
