// The GEMM library of this machine's GPU is the CPU's: what is tested is how the ops call it. In backward it does a
// GELU along with a product in bf16, and in f32 leaves it to the ops, so that both of their ways are taken.
#include "kernels/gelu.h"
#include "kernels/gemm_cuda.h"
#include "kernels/linear.h"

#include "kernels/gemm_cpu.h"
#include "tests/simt/simt.h"

namespace megalith::cuda {

struct Gemm::Library {
  cpu::Gemm gemm;
};
Gemm::Gemm() : library_(std::make_unique<Library>()) {}
Gemm::~Gemm() = default;
bool Gemm::fuses(const GemmCall& g) { return g.output == DType::bf16; }
void Gemm::run(const Queue& queue, const GemmCall& g) {
  const int64_t in = size_of(g.input), out = size_of(g.output);
  simt::submit(queue.stream, [=, this] {
    simt::reads_by_library(g.a, g.M * g.K * in);
    simt::reads_by_library(g.b, g.N * g.K * in);
    if (g.bias) simt::reads_by_library(g.bias, g.N * out);
    if (g.accumulate) simt::reads_by_library(g.c, g.M * g.N * out);
    if (g.gelu_input) simt::reads_by_library(g.gelu_input, g.M * g.N * out);
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
    const Tensor c(g.c, g.output, {g.M, g.N});
    if (g.gelu_input) cpu::gelu_backward(c, c, {const_cast<void*>(g.gelu_input), g.output, {g.M, g.N}});
    simt::writes_by_library(g.c, g.M * g.N * out);
  });
}

}  // namespace megalith::cuda
