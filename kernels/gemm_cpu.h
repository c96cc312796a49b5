// GEMM from the CPU library (oneDNN), in fixed tiles: a tile is one call of the library on one thread, and which tiles
// there are depends on the shape alone, so the bits do not depend on the number of threads.
#pragma once

#include <memory>
#include <string>

#include "kernels/gemm_call.h"

namespace megalith::cpu {

// Whether this processor multiplies bf16 faster than f32. With AVX512-BF16 but without AMX, Intel's does it at half the
// rate of f32 (measured: 107 and 205 GFLOP/s a core): there, tiles are widened to f32 first.
bool has_fast_bf16();

// Of the library, "2.6.3".
std::string gemm_version();

class Gemm {
 public:
  explicit Gemm(bool native_bf16 = has_fast_bf16());
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // The same bits for the same call, for any number of threads; but with native bf16 for the same number of threads.
  void run(const GemmCall& call);

 private:
  struct Primitives;  // of native bf16, cached by shape
  struct Scratch;     // of widened tiles, one a thread
  bool native_bf16_;
  std::unique_ptr<Primitives> primitives_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace megalith::cpu
