// The arguments of a CUDA op besides its tensors: its stream, and the scratch memory of that stream. Needs no CUDA
// header, so that every build can declare the ops.
//
// Work of one stream runs in order, so every op may use the whole workspace; its contents are undefined at the start of
// an op. The creator of the stream takes the workspace from an arena, so that the plan counts it.
#pragma once

#include <cstdint>

#include "kernels/system/chip.h"

struct CUstream_st;  // of the CUDA runtime

namespace megalith::cuda {

class Gemm;  // gemm_cuda.h: the GEMM library, with its choices by shape

// The size that ops may rely on. LayerNorm's partial sums, with a residual and 8192 wide, need three quarters of it.
constexpr int64_t workspace_bytes = int64_t{32} << 20;

struct Queue {
  CUstream_st* stream = nullptr;
  void* workspace = nullptr;  // 256-byte aligned
  Gemm* gemm = nullptr;       // owned by the creator of the stream
  Chip chip;
};

}  // namespace megalith::cuda
