// The GEMM library of this machine's GPU is the CPU's: what is tested is how the ops call it.
#include "kernels/gemm_cuda.h"

#include "kernels/gemm_cpu.h"

namespace megalith::cuda {

struct Gemm::Library {
  cpu::Gemm gemm;
};
Gemm::Gemm() : library_(std::make_unique<Library>()) {}
Gemm::~Gemm() = default;
void Gemm::run(const Queue&, const GemmCall& g) {
  library_->gemm.run({.a = g.a,
                      .b = g.b,
                      .c = g.c,
                      .bias = g.bias,
                      .M = g.M,
                      .N = g.N,
                      .K = g.K,
                      .a_transposed = g.a_transposed,
                      .b_transposed = g.b_transposed,
                      .accumulate = g.accumulate,
                      .input = g.input,
                      .output = g.output});
}

}  // namespace megalith::cuda
