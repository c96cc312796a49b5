#include "kernels/elementwise/elementwise.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void launch(Stream& s, const Fill& op) {
  CHECK(!is_8_bit(op.y.dtype()), "{}: y is {}, expected a type of 16 bits or more", op.name, name_of(op.y.dtype()));
  s.launch(op, {.flops = 0, .bytes = bytes_of(op.y)}, {op.y});
}

void launch(Stream& s, const Copy& op) {
  if (op.y.dtype() != op.x.dtype()) {
    expect_compute(op.name, "y", op.y);
    expect_compute(op.name, "x", op.x);
    CHECK(op.y.dtype() == DType::f32 || op.x.dtype() == DType::f32, "copy: y is {} and x is {}, expected f32 of one",
          name_of(op.y.dtype()), name_of(op.x.dtype()));
  }
  expect_numel(op.name, "x", op.x, op.x.dtype(), op.y.numel());
  CHECK(!is_8_bit(op.x.dtype()) || op.x.numel() % 2 == 0, "copy: x has {} elements of 8 bits, expected an even number",
        op.x.numel());
  s.launch(op, {.flops = 0, .bytes = bytes_of({op.y, op.x})}, {op.y});
}

void launch(Stream& s, const Add& op) {
  CHECK(op.y.dtype() != DType::i32, "add: y is i32, expected f32, bf16, f16 or f64");
  expect_numel(op.name, "x", op.x, op.y.dtype(), op.y.numel());
  s.launch(op, {.flops = numel_of(op.y), .bytes = 2 * bytes_of(op.y) + bytes_of(op.x)}, {op.y});
}

void launch(Stream& s, const SumRows& op) {
  CHECK(op.y.dtype() == DType::f32 || op.y.dtype() == DType::bf16, "sum_rows: y is {}, expected f32 or bf16",
        name_of(op.y.dtype()));
  expect_matrix(op.name, "x", op.x, DType::bf16, op.x.rows(), op.y.numel());
  s.launch(op, {.flops = numel_of(op.x), .bytes = (op.add ? 2 : 1) * bytes_of(op.y) + bytes_of(op.x)}, {op.y});
}

void launch(Stream& s, const AccumulateSum& op) {
  expect_numel(op.name, "out", op.out, DType::f64, 1);
  expect_dtype(op.name, "x", op.x, DType::f32);
  s.launch(op, {.flops = numel_of(op.x), .bytes = bytes_of(op.x) + 16}, {op.out});
}

void launch(Stream& s, const AccumulateSquareSum& op) {
  expect_numel(op.name, "out", op.out, DType::f64, 1);
  expect_dtype(op.name, "x", op.x, DType::f32);
  s.launch(op, {.flops = 2 * numel_of(op.x), .bytes = bytes_of(op.x) + 16, .kind = Cost::Kind::update}, {op.out});
}

void launch(Stream& s, const NormalFill& op) {
  expect_dtype(op.name, "y", op.y, DType::f32);
  CHECK(op.begin >= 0, "normal_fill: begins at element {}", op.begin);
  CHECK(op.columns.begin >= 0 && op.columns.count > 0 && op.columns.begin + op.columns.count <= op.columns.total,
        "normal_fill: columns [{}, {}) are outside [0, {})", op.columns.begin, op.columns.begin + op.columns.count,
        op.columns.total);
  s.launch(op, {.flops = 0, .bytes = bytes_of(op.y)}, {op.y});
}

}  // namespace megalith
