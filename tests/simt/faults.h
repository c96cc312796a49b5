// Small kernels, most of them wrong on purpose: what the machine of simt.h must find, and what it must let pass.
#pragma once

#include "kernels/stream/queue_cuda.h"
#include "kernels/tensor/tensor.h"
#include "tests/simt/simt.h"

namespace megalith::test {

// One launch of 2 blocks of 64 threads; y and x f32.
void run_planted(const char* kernel, Tensor y, Tensor x);
// One launch of a kernel with 128 bytes of shared memory of its own and so many of the launch, with or without asking
// for these first. With 2 blocks of 64 threads, y becomes x twice.
void run_with_shared(int64_t bytes, bool asks, dim3 grid, int threads, Tensor y, Tensor x);
// One launch of one block of 32 threads whose kernel's calls stay calls (unoptimized.cu): from f32 to f16, from f16 to
// bf16, and from bf16 to f32.
void run_unoptimized(Tensor to, Tensor from);
// One launch of one block of 128 threads (warpgroup_faults.cu).
void run_planted_products(const char* kernel, Tensor y, Tensor x);

}  // namespace megalith::test
