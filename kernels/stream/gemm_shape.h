// The key by which a GEMM library's kernel is chosen: a call (kernels/linear/gemm_call.h) without its pointers.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "kernels/tensor/tensor.h"

namespace megalith {

// C (M, N) = A (M, K) B (K, N), as in GemmCall.
struct GemmShape {
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false, bias = false, gelu = false, bias_gradient = false;
  DType input = DType::f32, output = DType::f32;
  int64_t alignment = most_alignment;  // bytes, a power of two that divides all addresses

  // 16 bytes: the width of vectors, and the alignment of Hopper's matrix copies (PTX ISA, cp.async.bulk.tensor). Larger
  // alignments are not distinguished, so that a shape's entry does not depend on the addresses of its tensors.
  static constexpr int64_t most_alignment = 16;

  auto operator<=>(const GemmShape&) const = default;
};

using GemmCounts = std::map<GemmShape, int64_t>;

}  // namespace megalith
