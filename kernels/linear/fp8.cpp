#include "kernels/linear/fp8.h"

#include "kernels/linear/gemm_call.h"
#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
void expect_fp8(const char* op, const char* name, const Tensor& t) {
  CHECK(is_8_bit(t.dtype()), "{}: {} is {}, expected e4m3 or e5m2", op, name, name_of(t.dtype()));
}
void expect_aligned(const char* op, const char* name, const Tensor& t) {
  CHECK(alignment_of(t.raw(), fp8_multiple) == fp8_multiple, "{}: {} does not begin on a boundary of {} bytes", op,
        name, fp8_multiple);
}
}  // namespace

void launch(Stream& s, const LargestMagnitude& op) {
  expect_compute(op.name, "x", op.x);
  expect(op.name, "amax", op.amax, DType::f32, {1});
  s.launch(op, {.flops = numel_of(op.x), .bytes = bytes_of({op.x, op.amax})}, {op.amax});
}

void launch(Stream& s, const CastToFp8& op) {
  expect_compute(op.name, "x", op.x);
  CHECK(!op.y.empty() || !op.transposed.empty(), "{}: neither y nor transposed is there", op.name);
  const DType type = op.y.empty() ? op.transposed.dtype() : op.y.dtype();
  if (!op.y.empty()) {
    expect_fp8(op.name, "y", op.y);
    expect_matrix(op.name, "y", op.y, type, op.x.rows(), op.x.cols());
  }
  if (!op.transposed.empty()) {
    expect_fp8(op.name, "transposed", op.transposed);
    expect_matrix(op.name, "transposed", op.transposed, type, op.x.cols(), op.x.rows());
  }
  CHECK(op.x.cols() % fp8_multiple == 0 && (op.transposed.empty() || op.x.rows() % fp8_multiple == 0),
        "{}: x has shape {}, expected multiples of {}", op.name, op.x.shape().str(), fp8_multiple);
  for (const auto& [what, t] : {std::pair{"x", op.x}, {"y", op.y}, {"transposed", op.transposed}})
    expect_aligned(op.name, what, t);
  expect(op.name, "unscale", op.unscale, DType::f32, {1});
  expect(op.name, "amax", op.amax, DType::f32, {1});
  s.launch(op, {.flops = 2 * numel_of(op.x), .bytes = bytes_of({op.y, op.transposed, op.unscale, op.x, op.amax})},
           {op.y, op.transposed, op.unscale});
}

void launch(Stream& s, const TransposeFp8& op) {
  expect_fp8(op.name, "x", op.x);
  expect_matrix(op.name, "y", op.y, op.x.dtype(), op.x.cols(), op.x.rows());
  CHECK(op.x.rows() % fp8_multiple == 0 && op.x.cols() % fp8_multiple == 0,
        "{}: x has shape {}, expected multiples of {}", op.name, op.x.shape().str(), fp8_multiple);
  for (const auto& [what, t] : {std::pair{"x", op.x}, {"y", op.y}}) expect_aligned(op.name, what, t);
  s.launch(op, {.bytes = bytes_of({op.y, op.x})}, {op.y});
}

void launch(Stream& s, const Fp8Product& op) {
  expect_fp8(op.name, "a", op.a);
  expect_matrix(op.name, "b", op.b, DType::e4m3, op.b.rows(), op.a.cols());
  CHECK(op.y.dtype() == DType::bf16 || op.y.dtype() == DType::f32, "{}: y is {}, expected bf16 or f32", op.name,
        name_of(op.y.dtype()));
  CHECK(!op.add || (op.y.dtype() == DType::f32 && op.bias.empty()), "{}: only f32 without a bias accumulates", op.name);
  expect_matrix(op.name, "y", op.y, op.y.dtype(), op.a.rows(), op.b.rows());
  expect(op.name, "a_unscale", op.a_unscale, DType::f32, {1});
  expect(op.name, "b_unscale", op.b_unscale, DType::f32, {1});
  if (!op.bias.empty()) expect(op.name, "bias", op.bias, op.y.dtype(), {op.b.rows()});
  CHECK(op.b.rows() % fp8_multiple == 0 && op.a.cols() % fp8_multiple == 0,
        "{}: {} x {} of an inner size of {}, expected multiples of {} columns and of the inner size", op.name,
        op.a.rows(), op.b.rows(), op.a.cols(), fp8_multiple);
  for (const auto& [what, t] : {std::pair{"y", op.y}, {"a", op.a}, {"b", op.b}, {"bias", op.bias}})
    expect_aligned(op.name, what, t);
  s.log_gemm(shape_of(gemm_call(op)));
  const double flops = 2.0 * static_cast<double>(op.b.numel() * op.a.rows()) + (op.bias.empty() ? 0 : numel_of(op.y));
  s.launch(op,
           {.flops = flops,
            .bytes = (op.add ? 2 : 1) * bytes_of(op.y) + bytes_of({op.a, op.b, op.bias}),
            .kind = op.add ? Cost::Kind::gemm_add : Cost::Kind::gemm,
            .m = op.y.rows(),
            .n = op.y.cols(),
            .k = op.a.cols(),
            .fp8 = true},
           {op.y});
}

}  // namespace megalith
