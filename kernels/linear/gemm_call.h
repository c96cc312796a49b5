// A call of a GEMM library, the CPU's or the GPU's, and the calls that a linear layer makes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear/fp8.h"
#include "kernels/linear/linear.h"
#include "kernels/stream/gemm_shape.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// C (M, N) = A (M, K) B (K, N) [+ C] [+ bias (N)], sums in f32. A and B have one type, f32, bf16 or f16, and are stored
// row-major or transposed; C is f32 or A's type; `accumulate` needs C in f32, a bias A's type. In 8 bits A is e4m3 or
// e5m2, row-major; B is e4m3, transposed; C is f32 or bf16, as the bias.
struct GemmCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // or null
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false;  // stored (K, M)
  bool b_transposed = false;  // stored (N, K)
  bool accumulate = false;
  // GPU only, and if Gemm::fuses() allows it. gelu_input (M, N) in C's type: C = (A B) * gelu'(gelu_input).
  // bias_gradient (M) f32: is set to the sums of A over K.
  const void* gelu_input = nullptr;
  void* bias_gradient = nullptr;
  // (1) f32 each, of factors of 8 bits: the product is multiplied by both.
  const void* a_unscale = nullptr;
  const void* b_unscale = nullptr;
  DType input = DType::f32;  // A's type, and B's: second_factor()
  DType output = DType::f32;
};

constexpr DType second_factor(DType first) { return first == DType::e5m2 ? DType::e4m3 : first; }

// Returns an address's alignment in bytes, at most `most`; null has `most`.
inline int64_t alignment_of(const void* p, int64_t most) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)) | most;
  return address & -address;
}

inline GemmShape shape_of(const GemmCall& g) {
  GemmShape shape{.M = g.M,
                  .N = g.N,
                  .K = g.K,
                  .a_transposed = g.a_transposed,
                  .b_transposed = g.b_transposed,
                  .accumulate = g.accumulate,
                  .bias = g.bias != nullptr,
                  .gelu = g.gelu_input != nullptr,
                  .bias_gradient = g.bias_gradient != nullptr,
                  .input = g.input,
                  .output = g.output};
  for (const void* p :
       {g.a, g.b, static_cast<const void*>(g.c), g.bias, g.gelu_input, static_cast<const void*>(g.bias_gradient)})
    shape.alignment = std::min(shape.alignment, alignment_of(p, GemmShape::most_alignment));
  return shape;
}

// The products of the linear layers (linear.h).
inline GemmCall gemm_call(const LinearForward& op) {
  return {.a = op.x.raw(),
          .b = op.w.raw(),
          .c = op.y.raw(),
          .bias = op.b.raw(),
          .M = op.x.rows(),
          .N = op.w.rows(),
          .K = op.x.cols(),
          .b_transposed = true,
          .input = op.x.dtype(),
          .output = op.y.dtype()};
}

inline GemmCall gemm_call(const LinearBackwardInput& op) {
  return {.a = op.dy.raw(),
          .b = op.w.raw(),
          .c = op.dx.raw(),
          .M = op.dy.rows(),
          .N = op.w.cols(),
          .K = op.dy.cols(),
          .input = op.dy.dtype(),
          .output = op.dx.dtype()};
}

inline GemmCall gemm_call(const LinearBackwardInputGelu& op) {
  GemmCall call = gemm_call(LinearBackwardInput{.dx = op.dh, .dy = op.dy, .w = op.w});
  call.gelu_input = op.h.raw();
  return call;
}

// This call leaves out the bias gradient.
inline GemmCall gemm_call(const LinearBackwardWeight& op) {
  return {.a = op.dy.raw(),
          .b = op.x.raw(),
          .c = op.dw.raw(),
          .M = op.dy.cols(),
          .N = op.x.cols(),
          .K = op.dy.rows(),
          .a_transposed = true,
          .accumulate = op.add,
          .input = op.dy.dtype(),
          .output = DType::f32};
}

inline GemmCall gemm_call(const Fp8Product& op) {
  return {.a = op.a.raw(),
          .b = op.b.raw(),
          .c = op.y.raw(),
          .bias = op.bias.raw(),
          .M = op.a.rows(),
          .N = op.b.rows(),
          .K = op.a.cols(),
          .b_transposed = true,
          .accumulate = op.add,
          .a_unscale = op.a_unscale.raw(),
          .b_unscale = op.b_unscale.raw(),
          .input = op.a.dtype(),
          .output = op.y.dtype()};
}

}  // namespace megalith
