// GEMM from the GPU's library (cuBLASLt). It asks the library once for each shape which of its kernels to take; a call
// then only enqueues. Sums are in f32: without TF32, and split sums are added in a fixed order, so that the same call
// gives the same bits.
#pragma once

#include <memory>

#include "kernels/base/queue_cuda.h"
#include "kernels/gemm_call.h"

namespace megalith::cuda {

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
