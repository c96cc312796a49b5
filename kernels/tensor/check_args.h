// Checks of an op's arguments. Every message names the op, the tensor, its value and the expected one.
#pragma once

#include "kernels/tensor/largest.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

inline void expect_dtype(const char* op, const char* name, const Tensor& t, DType want) {
  CHECK(t.dtype() == want, "{}: {} is {}, expected {}", op, name, name_of(t.dtype()), name_of(want));
}
// Checks for a type that models compute in.
inline void expect_compute(const char* op, const char* name, const Tensor& t) {
  CHECK(t.dtype() == DType::f32 || is_16_bit(t.dtype()), "{}: {} is {}, expected f32, bf16 or f16", op, name,
        name_of(t.dtype()));
}
// Checks for a type of the optimizer's state and of Muon's directions.
inline void expect_f32_or_bf16(const char* op, const char* name, const Tensor& t) {
  CHECK(t.dtype() == DType::f32 || t.dtype() == DType::bf16, "{}: {} is {}, expected f32 or bf16", op, name,
        name_of(t.dtype()));
}
// Checks for the type of a residual stream whose branches compute in `compute`.
inline void expect_residual(const char* op, const char* name, const Tensor& t, DType compute) {
  CHECK(t.dtype() == DType::f32 || t.dtype() == compute, "{}: {} is {}, expected f32 or {}", op, name,
        name_of(t.dtype()), name_of(compute));
}
inline void expect(const char* op, const char* name, const Tensor& t, DType dtype, const Shape& shape) {
  expect_dtype(op, name, t, dtype);
  CHECK(t.shape() == shape, "{}: {} has shape {}, expected {}", op, name, t.shape().str(), shape.str());
}
// Checks for (rows, cols), however the rows are divided into dimensions.
inline void expect_matrix(const char* op, const char* name, const Tensor& t, DType dtype, int64_t rows, int64_t cols) {
  expect_dtype(op, name, t, dtype);
  CHECK(t.numel() == rows * cols && t.cols() == cols, "{}: {} has shape {}, expected ({}, {})", op, name,
        t.shape().str(), rows, cols);
}
// Checks for what finds the largest magnitude of y.
inline void expect_largest(const char* op, const Largest& largest, const Tensor& y) {
  if (largest.amax.empty()) return;
  expect(op, "largest.amax", largest.amax, DType::f32, {1});
  CHECK(0 <= largest.rows && largest.rows <= y.rows(), "{}: largest.rows = {}, but y has {}", op, largest.rows,
        y.rows());
}
inline void expect_numel(const char* op, const char* name, const Tensor& t, DType dtype, int64_t numel) {
  expect_dtype(op, name, t, dtype);
  CHECK(t.numel() == numel, "{}: {} has {} elements, expected {}", op, name, t.numel(), numel);
}
inline void expect_state(const char* op, const char* name, const Tensor& t, int64_t n) {
  expect_f32_or_bf16(op, name, t);
  expect_numel(op, name, t, t.dtype(), n);
}

}  // namespace megalith
