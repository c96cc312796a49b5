// Small kernels, most of them wrong on purpose: what the machine of simt.h must find, and what it must let pass.
#pragma once

#include "kernels/base/queue_cuda.h"
#include "kernels/base/tensor.h"
#include "tests/simt/simt.h"

namespace megalith::test {

// One launch of 2 blocks of 64 threads; y and x f32.
void run_planted(const char* kernel, Tensor y, Tensor x);
// One launch of a kernel with 128 bytes of shared memory of its own and so many of the launch, with or without asking
// for these first. With 2 blocks of 64 threads, y becomes x twice.
void run_with_shared(int64_t bytes, bool asks, dim3 grid, int threads, Tensor y, Tensor x);
// x as f32 in f16, as f16 in bf16, and as f32 again in y, by launches of one block of 32 threads whose kernel's code is
// not optimised (unoptimized.cu).
void run_unoptimized(Tensor y, Tensor f16, Tensor bf16, Tensor x);
// One launch of one block of 128 threads (warpgroup_faults.cu).
void run_planted_products(const char* kernel, Tensor y, Tensor x);

}  // namespace megalith::test
