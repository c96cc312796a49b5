// What a GEMM library chooses its kernel by: a call (kernels/gemm_call.h) without its memory.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "kernels/base/tensor.h"

namespace megalith {

// C (M, N) = A (M, K) B (K, N), as there.
struct GemmShape {
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false, bias = false, gelu = false, bias_gradient = false;
  DType input = DType::f32, output = DType::f32;
  int64_t alignment = most_alignment;  // bytes, a power of two that divides all addresses

  // Vectors are of 16 bytes, and the copies of Hopper's matrices start on 16 (PTX ISA, cp.async.bulk.tensor). More is
  // not told apart, so that what is known of a shape holds wherever its tensors happen to lie.
  static constexpr int64_t most_alignment = 16;

  auto operator<=>(const GemmShape&) const = default;
};

using GemmCounts = std::map<GemmShape, int64_t>;

}  // namespace megalith
