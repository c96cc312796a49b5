// GEMM from the GPU's library (cuBLASLt). It asks the library once for each shape which of its kernels to take; a call
// then only enqueues. Sums are in f32: without TF32, and split sums are added in a fixed order, so that the same call
// gives the same bits.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/queue_cuda.h"
#include "kernels/base/tensor.h"

namespace megalith::cuda {

// What follows the product and the bias: nothing; C = gelu(v) and gelu_input = v; or C = v * gelu'(gelu_input).
enum class Gelu { none, forward, backward };

// C (M, N) = A (M, K) B (K, N) [+ C] [+ bias (N)], in device memory. A and B are f32 or bf16 alike, each stored
// row-major, or its transpose is; C is f32 or A's type; `accumulate` needs C in f32.
struct GemmCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // in C's type; null for none
  int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false;  // stored (K, M)
  bool b_transposed = false;  // stored (N, K)
  bool accumulate = false;
  Gelu gelu = Gelu::none;
  void* gelu_input = nullptr;  // (M, N) in C's type
  DType input = DType::f32;
  DType output = DType::f32;
};

class Gemm {
 public:
  // For the GPU that is selected. Error: a build without CUDA.
  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Whether a call with a GELU is worth running: the library has a kernel for it, and one that is faster than two.
  // Where not, run() is not to be called with it.
  bool fuses(const GemmCall& call);

  // Uses the queue's workspace.
  void run(const Queue& queue, const GemmCall& call);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace megalith::cuda
