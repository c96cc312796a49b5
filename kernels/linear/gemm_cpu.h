// GEMM from the CPU library (oneDNN), in fixed tiles: a tile is one library call on one thread, and the tiles depend on
// the shape alone, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "kernels/linear/gemm_call.h"

namespace megalith::cpu {

// Returns whether this processor multiplies bf16 faster than f32. Intel processors with AVX512-BF16 but without AMX do
// it at half the rate (measured: 107 and 205 GFLOP/s a core); there, tiles are widened to f32 first.
bool has_fast_bf16();

// Returns whether the bits of a product's row are independent of the number of rows (parallel.tensor_pieces). They are
// with AVX-512; with AVX2 the library's order of summation depends on the number of rows.
bool rows_keep_their_bits();

// Returns the library's version, "2.6.3".
std::string gemm_version();

// Names the widest vectors that the CPU's ops are compiled for: "AVX-512", "AVX2", "SSE4.2", "SSE2" or "NEON".
const char* vectors_of_ops();

// The tiles of a product of M rows and N columns: about 256 x 768, wide enough that packing costs the library a few
// percent, small enough that C stays in the second cache, and an even number if there is work for two threads. The last
// tile of a row or column may be smaller. Products of few rows and many columns are cut by columns: 64 x 384 x 128
// takes 59 us in one tile; in two, 60 on one thread and 34 on two. 64 x 128 x 512 took 95 us in one and 173 in two (AMD
// EPYC, Zen 4).
class GemmTiles {
 public:
  struct Tile {
    int64_t row, col, rows, cols;
  };

  GemmTiles(int64_t M, int64_t N) : M_(M), N_(N) {
    num_rows_ = std::max<int64_t>(1, std::min(4 * ((M + 1023) / 1024), M / 64));
    if (num_rows_ > 1) num_rows_ = round_up(num_rows_, 2);
    rows_ = round_up((M + num_rows_ - 1) / num_rows_, 8);
    num_rows_ = (M + rows_ - 1) / rows_;
    num_cols_ = N > 1024 ? (N + 767) / 768 : num_rows_ == 1 && N >= 256 ? 2 : 1;
    cols_ = round_up((N + num_cols_ - 1) / num_cols_, 48);
    num_cols_ = (N + cols_ - 1) / cols_;
  }
  int64_t count() const { return num_rows_ * num_cols_; }
  // Tile i in the order in which threads take them.
  Tile operator[](int64_t i) const {
    const int64_t row = i % num_rows_ * rows_, col = i / num_rows_ * cols_;
    return {row, col, std::min(rows_, M_ - row), std::min(cols_, N_ - col)};
  }

 private:
  int64_t M_, N_, rows_, cols_, num_rows_, num_cols_;
};

class Gemm {
 public:
  // Returns whether the library multiplies bf16 on this processor at all.
  static bool has_native_bf16();

  explicit Gemm(bool native_bf16 = has_fast_bf16());
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // The same call gives the same bits for any number of threads, except in native bf16. Error: native bf16 is
  // requested, and this processor has none.
  void run(const GemmCall& call);

 private:
  struct Primitives;  // native bf16 products, cached by shape
  struct Scratch;     // widened tiles, one for each thread
  bool native_bf16_;
  std::unique_ptr<Primitives> primitives_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace megalith::cpu
