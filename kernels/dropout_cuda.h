// The mask of Dropout for kernels over rows. One Philox block serves four columns that lie 16 apart, so a thread takes
// four pieces of n neighbours, 16 columns from one to the next, and draws each block once.
#pragma once

#include "kernels/device_cuda.h"
#include "kernels/dropout.h"
#include "kernels/philox.h"

namespace megalith::cuda {

struct DropoutMask {
  uint64_t key, first_row;
  uint32_t threshold;
  float scale;
};
inline DropoutMask mask_of(const Dropout& d) {
  return {.key = dropout_key(d),
          .first_row = static_cast<uint64_t>(d.first_row),
          .threshold = dropout_threshold(d),
          .scale = static_cast<float>(1.0 / (1.0 - d.p))};
}

namespace mask_pieces {
constexpr int count = 4, apart = 16, group = count * apart;
}

// How many threads cover a row of C, n neighbours a piece; and where the first piece of the i-th of them begins.
template <int n>
__device__ __host__ constexpr int64_t masked_threads(int64_t C) {
  return (C + mask_pieces::group - 1) / mask_pieces::group * (mask_pieces::apart / n);
}
template <int n>
__device__ constexpr int64_t masked_column(int64_t i) {
  constexpr int each = mask_pieces::apart / n;
  return i / each * mask_pieces::group + i % each * n;
}

// factors[piece][k] = 0 or 1 / (1 - p) for column c + 16 * piece + k of that row; c as masked_column gives it.
template <int n>
__device__ void draw(float (&factors)[mask_pieces::count][n], const DropoutMask& mask, int64_t row, int64_t c) {
  const uint64_t counter = static_cast<uint64_t>(c / mask_pieces::group * mask_pieces::apart + c % mask_pieces::apart);
#pragma unroll
  for (int k = 0; k < n; k++) {
    const PhiloxBlock words = philox(mask.key, mask.first_row + static_cast<uint64_t>(row), counter + k);
#pragma unroll
    for (int piece = 0; piece < mask_pieces::count; piece++)
      factors[piece][k] = words[piece] < mask.threshold ? 0.0f : mask.scale;
  }
}

}  // namespace megalith::cuda
