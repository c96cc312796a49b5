// Shapes of attention whose times an H200 has measured, or which recipes have (bench/results/h200.md and its JSON).
#pragma once

#include <cstdint>

#include "kernels/attention/hopper_grid.h"

namespace megalith::bench {

struct AttentionRow {
  const char* name;
  int64_t sequences, heads, shared_heads, positions, size;  // heads: of a sequence
  // Microseconds of the passes at commit 58356753; 0: not measured.
  double forward = 0, backward = 0;

  cuda::attention::AttentionShape shape() const {
    return {sequences * heads, sequences * shared_heads, positions, size};
  }
};
constexpr AttentionRow attention_rows[] = {
    {"124M", 16, 12, 12, 1024, 64, 113.8, 323},
    {"124M, 4 heads to a key-value head", 16, 12, 3, 1024, 64, 97.0, 384},
    {"1558M", 8, 25, 25, 1024, 64, 129.3, 339},
    {"1558M, 5 heads to a key-value head", 8, 25, 5, 1024, 64, 103.0, 435},
    {"32 heads of 64", 16, 32, 32, 1024, 64, 252.4, 805},
    {"Llama 3.2 1B", 4, 32, 8, 2048, 64, 0, 835},
    {"32 heads of 64, 4,096 positions", 4, 32, 32, 4096, 64, 740.9, 2264},
    {"18 heads of 112", 16, 18, 18, 1024, 112, 229.4, 714},
    {"18 heads of 112, 4,096 positions", 4, 18, 18, 4096, 112, 605.3, 2069},
    {"16 heads of 128", 16, 16, 16, 1024, 128, 208.2, 626},
    {"16 heads of 128, 4,096 positions", 4, 16, 16, 4096, 128, 558.3, 1941},
    {"Llama 3 8B, 8,192 positions", 1, 32, 8, 8192, 128, 0, 6254},
    {"8 heads to a key-value head", 2, 32, 4, 4096, 128},
    {"Qwen 2.5 7B, 8,192 positions", 1, 28, 4, 8192, 128},
    {"Llama 3 8B, 16,384 positions", 1, 32, 8, 16384, 128},
    {"Llama 3 70B, 8,192 positions", 1, 64, 8, 8192, 128},
    {"Llama 3 70B in 8 parts, 8,192 positions", 1, 8, 1, 8192, 128},
};

}  // namespace megalith::bench
