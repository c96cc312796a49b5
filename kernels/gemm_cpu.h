// GEMM of the CPU library (oneDNN), its primitives cached by shape, so that a call costs no set-up.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/tensor.h"

namespace megalith::cpu {

// C (M, N) = A (M, K) B (K, N) [+ C] [+ bias (N)], sums in f32. A and B are f32 or bf16 alike, each stored row-major,
// or its transpose is; C is f32 or A's type.
struct GemmCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // in A's type; null for none
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false;  // stored (K, M)
  bool b_transposed = false;  // stored (N, K)
  bool accumulate = false;
  DType input = DType::f32;
  DType output = DType::f32;
};

// The same bits for the same call with the same number of threads; another number may split the sums otherwise.
class Gemm {
 public:
  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const GemmCall& call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megalith::cpu
