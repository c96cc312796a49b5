#include "kernels/norm/head_norm.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
double normed(const Tensor& x, const AttentionDims& d) { return static_cast<double>(x.rows() * (d.H + d.kv()) * d.D); }
void expect_heads(const char* op, const Tensor& x, const Tensor& rstd, const Tensor& q_w, const Tensor& k_w,
                  const AttentionDims& d) {
  expect_compute(op, "x", x);
  expect_matrix(op, "x", x, x.dtype(), d.B * d.T, d.qkv_width());
  expect(op, "rstd", rstd, DType::f32, {x.rows(), d.H + d.kv()});
  expect(op, "q_w", q_w, x.dtype(), {d.D});
  expect(op, "k_w", k_w, x.dtype(), {d.D});
}
}  // namespace

void head_norm_forward(Stream& s, Tensor y, Tensor rstd, Tensor x, Tensor q_w, Tensor k_w, const AttentionDims& dims,
                       float epsilon) {
  const char* op = "head_norm_forward";
  expect_heads(op, x, rstd, q_w, k_w, dims);
  expect_matrix(op, "y", y, x.dtype(), x.rows(), x.cols());
  s.launch(
      op, {5 * normed(x, dims), bytes_of({y, rstd, x, q_w, k_w})}, {y, rstd},
      [=] { cpu::head_norm_forward(y, rstd, x, q_w, k_w, dims, epsilon); },
      [=](auto queue) { cuda::head_norm_forward(queue, y, rstd, x, q_w, k_w, dims, epsilon); });
}

void head_norm_backward(Stream& s, Tensor d, Tensor dq_w, Tensor dk_w, Tensor x, Tensor rstd, Tensor q_w, Tensor k_w,
                        const AttentionDims& dims) {
  const char* op = "head_norm_backward";
  expect_heads(op, x, rstd, q_w, k_w, dims);
  expect_matrix(op, "d", d, x.dtype(), x.rows(), x.cols());
  if (!dq_w.empty()) expect(op, "dq_w", dq_w, DType::f32, {dims.D});
  if (!dk_w.empty()) expect(op, "dk_w", dk_w, DType::f32, {dims.D});
  const double share = normed(x, dims) / static_cast<double>(x.numel());
  s.launch(
      op, {11 * normed(x, dims), share * (2 * bytes_of(d) + bytes_of(x)) + bytes_of({rstd, q_w, k_w})}, {d, dq_w, dk_w},
      [=] { cpu::head_norm_backward(d, dq_w, dk_w, x, rstd, q_w, k_w, dims); },
      [=](auto queue) { cuda::head_norm_backward(queue, d, dq_w, dk_w, x, rstd, q_w, k_w, dims); });
}

}  // namespace megalith
