#include "kernels/attention/attention.h"

#include "kernels/attention/hopper_grid.h"
#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
// FLOPs of one product over the causal half: T (T + 1) / 2 pairs of D each. A cost may not depend on data, so pairs of
// different documents count too, although `starts` skips some of them.
double product_flops(const AttentionDims& d) {
  return static_cast<double>(d.B * d.H * d.D) * static_cast<double>(d.T) * static_cast<double>(d.T + 1);
}
Cost attention_cost(int products, double bytes, const AttentionDims& d, DType dtype) {
  return {.flops = products * product_flops(d),
          .bytes = bytes,
          .kind = Cost::Kind::attention,
          .m = d.B * d.H,
          .n = d.T,
          .k = d.D,
          .shared = d.B * d.kv(),
          .backward = products == 5,
          .f32 = dtype == DType::f32};
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

int64_t attention_backward_scratch(const cuda::Chip& chip, DType dtype, const AttentionDims& dims) {
  if (chip.generation != 9 || !is_16_bit(dtype) || !cuda::attention::has_tiles(dims.D)) return 0;
  return cuda::attention::backward_grid({dims.B * dims.H, dims.B * dims.kv(), dims.T, dims.D}).scratch();
}

void launch(Stream& s, const AttentionForward& op) {
  expect_dims(op.name, op.dims);
  const int64_t rows = op.dims.B * op.dims.T, width = op.dims.H * op.dims.D;
  expect_compute(op.name, "qkv", op.qkv);
  expect_matrix(op.name, "qkv", op.qkv, op.qkv.dtype(), rows, op.dims.qkv_width());
  expect_matrix(op.name, "out", op.out, op.qkv.dtype(), rows, width);
  expect(op.name, "lse", op.lse, DType::f32, {op.dims.B, op.dims.H, op.dims.T});
  expect_starts(op.name, op.starts, op.dims);
  expect_dropout(op.name, op.dropout);
  s.launch(op, attention_cost(2, bytes_of({op.out, op.lse, op.qkv, op.starts}), op.dims, op.qkv.dtype()),
           {op.out, op.lse});
}

void launch(Stream& s, const AttentionBackward& op) {
  expect_dims(op.name, op.dims);
  const int64_t rows = op.dims.B * op.dims.T, width = op.dims.H * op.dims.D;
  expect_compute(op.name, "qkv", op.qkv);
  expect_matrix(op.name, "qkv", op.qkv, op.qkv.dtype(), rows, op.dims.qkv_width());
  expect_matrix(op.name, "dqkv", op.dqkv, op.qkv.dtype(), rows, op.dims.qkv_width());
  expect_matrix(op.name, "dout", op.dout, op.qkv.dtype(), rows, width);
  expect_matrix(op.name, "out", op.out, op.qkv.dtype(), rows, width);
  expect(op.name, "lse", op.lse, DType::f32, {op.dims.B, op.dims.H, op.dims.T});
  expect(op.name, "delta", op.delta, DType::f32, {op.dims.B, op.dims.H, op.dims.T});
  expect_starts(op.name, op.starts, op.dims);
  expect_dropout(op.name, op.dropout);
  const int64_t needed = attention_backward_scratch(s.queue().chip, op.qkv.dtype(), op.dims);
  if (needed > 0 || !op.scratch.empty())
    expect(op.name, "scratch", op.scratch, DType::f32,
           {attention_backward_scratch({.generation = 9}, op.qkv.dtype(), op.dims)});
  const double bytes = 2 * bytes_of(op.delta) + bytes_of({op.dqkv, op.dout, op.out, op.lse, op.qkv, op.starts});
  s.launch(op, attention_cost(5, bytes, op.dims, op.qkv.dtype()), {op.dqkv});
}

}  // namespace megalith
