#include "kernels/norm/head_norm.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
double normed(const Tensor& x, const AttentionDims& d) { return static_cast<double>(x.rows() * (d.H + d.kv()) * d.D); }
template <class Op>
void expect_heads(const Op& op) {
  const AttentionDims& d = op.dims;
  expect_compute(op.name, "x", op.x);
  expect_matrix(op.name, "x", op.x, op.x.dtype(), d.B * d.T, d.qkv_width());
  expect(op.name, "rstd", op.rstd, DType::f32, {op.x.rows(), d.H + d.kv()});
  expect(op.name, "q_w", op.q_w, op.x.dtype(), {d.D});
  expect(op.name, "k_w", op.k_w, op.x.dtype(), {d.D});
}
}  // namespace

void launch(Stream& s, const HeadNormForward& op) {
  expect_heads(op);
  expect_matrix(op.name, "y", op.y, op.x.dtype(), op.x.rows(), op.x.cols());
  s.launch(op, {5 * normed(op.x, op.dims), bytes_of({op.y, op.rstd, op.x, op.q_w, op.k_w})}, {op.y, op.rstd});
}

void launch(Stream& s, const HeadNormBackward& op) {
  expect_heads(op);
  expect_matrix(op.name, "d", op.d, op.x.dtype(), op.x.rows(), op.x.cols());
  if (!op.dq_w.empty()) expect(op.name, "dq_w", op.dq_w, DType::f32, {op.dims.D});
  if (!op.dk_w.empty()) expect(op.name, "dk_w", op.dk_w, DType::f32, {op.dims.D});
  const double share = normed(op.x, op.dims) / static_cast<double>(op.x.numel());
  s.launch(
      op,
      {11 * normed(op.x, op.dims), share * (2 * bytes_of(op.d) + bytes_of(op.x)) + bytes_of({op.rstd, op.q_w, op.k_w})},
      {op.d, op.dq_w, op.dk_w});
}

}  // namespace megalith
