// A call of a GEMM library, the CPU's or the GPU's, and those that a linear layer makes of either.
#pragma once

#include <cstdint>

#include "kernels/base/tensor.h"

namespace megalith {

// C (M, N) = A (M, K) B (K, N) [+ C] [+ bias (N)], sums in f32. A and B are f32, bf16 or f16 alike, each stored
// row-major, or its transpose is; C is f32 or A's type; `accumulate` needs C in f32, a bias A's type.
struct GemmCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // null for none
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false;  // stored (K, M)
  bool b_transposed = false;  // stored (N, K)
  bool accumulate = false;
  const void* gelu_input = nullptr;  // (M, N) in C's type; on a GPU only: C = (A B) * gelu'(gelu_input)
  DType input = DType::f32;
  DType output = DType::f32;
};

// y = x w^T + b
inline GemmCall linear_forward_call(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b) {
  return {.a = x.raw(),
          .b = w.raw(),
          .c = y.raw(),
          .bias = b.raw(),
          .M = x.rows(),
          .N = w.rows(),
          .K = x.cols(),
          .b_transposed = true,
          .input = x.dtype(),
          .output = y.dtype()};
}

// dx = dy w
inline GemmCall linear_backward_input_call(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  return {.a = dy.raw(),
          .b = w.raw(),
          .c = dx.raw(),
          .M = dy.rows(),
          .N = w.cols(),
          .K = dy.cols(),
          .input = dy.dtype(),
          .output = dx.dtype()};
}

// dw [+]= dy^T x
inline GemmCall linear_backward_weight_call(const Tensor& dw, const Tensor& dy, const Tensor& x, bool add) {
  return {.a = dy.raw(),
          .b = x.raw(),
          .c = dw.raw(),
          .M = dy.cols(),
          .N = x.cols(),
          .K = dy.rows(),
          .a_transposed = true,
          .accumulate = add,
          .input = dy.dtype(),
          .output = DType::f32};
}

}  // namespace megalith
