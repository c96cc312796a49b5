// What a CUDA op is given beside its tensors: the stream it enqueues on and the scratch memory of that stream. Needs no
// CUDA header, so that every build can declare the ops.
//
// Work of one stream runs in order, so every op may use the whole workspace and nothing in it outlives the op: what it
// holds at the start means nothing. Whoever makes the stream takes the workspace from an arena, where the plan sees it.
#pragma once

#include <cstdint>

struct CUstream_st;  // of the CUDA runtime

namespace megalith::cuda {

class Gemm;  // gemm_cuda.h: the GEMM library, with its choices by shape

// The size ops may rely on: LayerNorm's partial sums, with a residual and 8192 wide, need three quarters of it. What
// can do with less goes by Queue::workspace_bytes, of which tests give less.
constexpr int64_t workspace_bytes = int64_t{32} << 20;

// What ops choose their kernels by.
struct Chip {
  int generation = 0;         // of the GPU: its compute capability's major number, 9 for Hopper
  int64_t shared_memory = 0;  // bytes that a block may have, the kernel's own variables included
};

struct Queue {
  CUstream_st* stream = nullptr;
  void* workspace = nullptr;  // on a boundary of 256 bytes
  int64_t workspace_bytes = cuda::workspace_bytes;
  Gemm* gemm = nullptr;  // whoever makes the stream makes it too
  Chip chip;
};

}  // namespace megalith::cuda
