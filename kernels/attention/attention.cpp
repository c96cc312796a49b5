#include "kernels/attention/attention.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
// FLOPs of one product over the causal half: T (T + 1) / 2 pairs of D each. A cost may not depend on data, so pairs of
// different documents count too, although `starts` saves some of them.
double product_flops(const AttentionDims& d) {
  return static_cast<double>(d.B * d.H * d.D) * static_cast<double>(d.T) * static_cast<double>(d.T + 1);
}
Cost attention_cost(int products, double bytes, const AttentionDims& d) {
  return {products * product_flops(d), bytes, Cost::Kind::attention, d.B * d.H, d.T, d.D};
}
void expect_dims(const char* op, const AttentionDims& d) {
  CHECK(d.B > 0 && d.T > 0 && d.H > 0 && d.D > 0, "{}: B {}, T {}, H {}, D {}; all must be positive", op, d.B, d.T, d.H,
        d.D);
  CHECK(d.kv() > 0 && d.H % d.kv() == 0, "{}: {} key-value heads do not divide {} heads", op, d.kv(), d.H);
}
void expect_starts(const char* op, const Tensor& starts, const AttentionDims& d) {
  if (!starts.empty()) expect(op, "starts", starts, DType::i32, {d.B, d.T});
}
}  // namespace

void attention_forward(Stream& s, Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d,
                       Tensor starts) {
  const char* op = "attention_forward";
  expect_dims(op, dims);
  const int64_t rows = dims.B * dims.T, width = dims.H * dims.D;
  expect_compute(op, "qkv", qkv);
  expect_matrix(op, "qkv", qkv, qkv.dtype(), rows, dims.qkv_width());
  expect_matrix(op, "out", out, qkv.dtype(), rows, width);
  expect(op, "lse", lse, DType::f32, {dims.B, dims.H, dims.T});
  expect_starts(op, starts, dims);
  expect_dropout(op, d);
  s.launch(
      op, attention_cost(2, bytes_of({out, lse, qkv, starts}), dims), {out, lse},
      [=] { cpu::attention_forward(out, lse, qkv, starts, dims, d); },
      [=](auto queue) { cuda::attention_forward(queue, out, lse, qkv, starts, dims, d); });
}

void attention_backward(Stream& s, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        const AttentionDims& dims, const Dropout& d, Tensor starts) {
  const char* op = "attention_backward";
  expect_dims(op, dims);
  const int64_t rows = dims.B * dims.T, width = dims.H * dims.D;
  expect_compute(op, "qkv", qkv);
  expect_matrix(op, "qkv", qkv, qkv.dtype(), rows, dims.qkv_width());
  expect_matrix(op, "dqkv", dqkv, qkv.dtype(), rows, dims.qkv_width());
  expect_matrix(op, "dout", dout, qkv.dtype(), rows, width);
  expect_matrix(op, "out", out, qkv.dtype(), rows, width);
  expect(op, "lse", lse, DType::f32, {dims.B, dims.H, dims.T});
  expect(op, "delta", delta, DType::f32, {dims.B, dims.H, dims.T});
  expect_starts(op, starts, dims);
  expect_dropout(op, d);
  const double bytes = 2 * bytes_of(delta) + bytes_of({dqkv, dout, out, lse, qkv, starts});
  s.launch(
      op, attention_cost(5, bytes, dims), {dqkv},
      [=] { cpu::attention_backward(dqkv, delta, dout, out, lse, qkv, starts, dims, d); },
      [=](auto queue) { cuda::attention_backward(queue, dqkv, delta, dout, out, lse, qkv, starts, dims, d); });
}

}  // namespace megalith
