#include "kernels/elementwise/elementwise.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

void fill(Stream& s, Tensor y, double value) {
  s.launch(
      "fill", {.flops = 0, .bytes = bytes_of(y)}, {y}, [=] { cpu::fill(y, value); },
      [=](auto queue) { cuda::fill(queue, y, value); });
}

void copy(Stream& s, Tensor y, Tensor x) {
  if (y.dtype() != x.dtype()) {
    expect_compute("copy", "y", y);
    expect_compute("copy", "x", x);
    CHECK(y.dtype() == DType::f32 || x.dtype() == DType::f32, "copy: y is {} and x is {}, expected f32 of one",
          name_of(y.dtype()), name_of(x.dtype()));
  }
  expect_numel("copy", "x", x, x.dtype(), y.numel());
  s.launch(
      "copy", {.flops = 0, .bytes = bytes_of({y, x})}, {y}, [=] { cpu::copy(y, x); },
      [=](auto queue) { cuda::copy(queue, y, x); });
}

void add(Stream& s, Tensor y, Tensor x) {
  CHECK(y.dtype() != DType::i32, "add: y is i32, expected f32, bf16, f16 or f64");
  expect_numel("add", "x", x, y.dtype(), y.numel());
  s.launch(
      "add", {.flops = numel_of(y), .bytes = 2 * bytes_of(y) + bytes_of(x)}, {y}, [=] { cpu::add(y, x); },
      [=](auto queue) { cuda::add(queue, y, x); });
}

void sum_rows(Stream& s, Tensor y, Tensor x, bool add) {
  CHECK(y.dtype() == DType::f32 || y.dtype() == DType::bf16, "sum_rows: y is {}, expected f32 or bf16",
        name_of(y.dtype()));
  expect_matrix("sum_rows", "x", x, DType::bf16, x.rows(), y.numel());
  s.launch(
      "sum_rows", {.flops = numel_of(x), .bytes = (add ? 2 : 1) * bytes_of(y) + bytes_of(x)}, {y},
      [=] { cpu::sum_rows(y, x, add); }, [=](auto queue) { cuda::sum_rows(queue, y, x, add); });
}

void accumulate_sum(Stream& s, Tensor out, Tensor x, double scale) {
  expect_numel("accumulate_sum", "out", out, DType::f64, 1);
  expect_dtype("accumulate_sum", "x", x, DType::f32);
  s.launch(
      "accumulate_sum", {.flops = numel_of(x), .bytes = bytes_of(x) + 16}, {out},
      [=] { cpu::accumulate_sum(out, x, scale); }, [=](auto queue) { cuda::accumulate_sum(queue, out, x, scale); });
}

void accumulate_square_sum(Stream& s, Tensor out, Tensor x) {
  expect_numel("accumulate_square_sum", "out", out, DType::f64, 1);
  expect_dtype("accumulate_square_sum", "x", x, DType::f32);
  s.launch(
      "accumulate_square_sum", {.flops = 2 * numel_of(x), .bytes = bytes_of(x) + 16, .kind = Cost::Kind::update}, {out},
      [=] { cpu::accumulate_square_sum(out, x); }, [=](auto queue) { cuda::accumulate_square_sum(queue, out, x); });
}

void normal_fill(Stream& s, Tensor y, uint64_t seed, uint64_t stream, int64_t begin, double std, Columns columns) {
  expect_dtype("normal_fill", "y", y, DType::f32);
  CHECK(begin >= 0, "normal_fill: begins at element {}", begin);
  CHECK(columns.begin >= 0 && columns.count > 0 && columns.begin + columns.count <= columns.total,
        "normal_fill: columns [{}, {}) are outside [0, {})", columns.begin, columns.begin + columns.count,
        columns.total);
  s.launch(
      "normal_fill", {.flops = 0, .bytes = bytes_of(y)}, {y},
      [=] { cpu::normal_fill(y, seed, stream, begin, std, columns); },
      [=](auto queue) { cuda::normal_fill(queue, y, seed, stream, begin, std, columns); });
}

}  // namespace megalith
