// Dropout's mask for kernels over rows. One Philox block serves four columns that are 16 apart. A thread therefore
// takes four runs of n neighbours, each 16 columns after the previous one, and draws each block once.
#pragma once

#include "kernels/elementwise/drawn_cuda.h"
#include "kernels/elementwise/philox.h"

namespace megalith::cuda {

// Dropout's mask as a kernel argument.
struct DropoutMask {
  Drawn drawn;
  uint32_t threshold;
  float scale;

  __device__ DropoutMask now() const {
    DropoutMask mask = *this;
    mask.drawn.read();
    return mask;
  }
};
inline DropoutMask mask_of(const Dropout& d) {
  return {.drawn = d.active() ? Drawn(d) : Drawn(),
          .threshold = dropout_threshold(d),
          .scale = static_cast<float>(1.0 / (1.0 - d.p))};
}

namespace mask_runs {
constexpr int count = 4, apart = 16, group = count * apart;
}

// Returns how many threads cover a row of C with runs of n neighbours, and the first column of the i-th thread.
template <int n>
__device__ __host__ constexpr int64_t masked_threads(int64_t C) {
  return (C + mask_runs::group - 1) / mask_runs::group * (mask_runs::apart / n);
}
template <int n>
__device__ constexpr int64_t masked_column(int64_t i) {
  constexpr int each = mask_runs::apart / n;
  return i / each * mask_runs::group + i % each * n;
}

// Sets factors[run][k] to 0 or 1 / (1 - p) for column c + 16 * run + k of the row. masked_column returns c.
template <int n>
__device__ void draw(float (&factors)[mask_runs::count][n], const DropoutMask& mask, int64_t row, int64_t c) {
  const uint64_t counter = static_cast<uint64_t>(c / mask_runs::group * mask_runs::apart + c % mask_runs::apart);
#pragma unroll
  for (int k = 0; k < n; k++) {
    const PhiloxBlock words = philox(mask.drawn.key, mask.drawn.first_row + static_cast<uint64_t>(row), counter + k);
#pragma unroll
    for (int run = 0; run < mask_runs::count; run++) factors[run][k] = words[run] < mask.threshold ? 0.0f : mask.scale;
  }
}

// Sets factors[k] for column c + k of the row, where the lanes of a warp have neighbouring runs and lane 0 begins at a
// multiple of 64. The lanes share the blocks of a group, so all lanes must call it.
template <int n>
__device__ void draw_together(float (&factors)[n], const DropoutMask& mask, int64_t row, int64_t c) {
  using namespace mask_runs;
  constexpr int lanes = group / n, own = apart / lanes;
  const int mine = lane_index() % lanes, leader = lane_index() - mine;
  const auto counter = static_cast<uint64_t>(c / group * apart + mine * own);
  unsigned kept = 0;  // bit 4 * i + word of this lane's i-th block
#pragma unroll
  for (int i = 0; i < own; i++) {
    const PhiloxBlock words = philox(mask.drawn.key, mask.drawn.first_row + static_cast<uint64_t>(row), counter + i);
#pragma unroll
    for (int word = 0; word < count; word++) kept |= (words[word] < mask.threshold ? 0u : 1u) << (count * i + word);
  }
  const int word = mine * n / apart, first = mine * n % apart;
#pragma unroll
  for (int k = 0; k < n; k += own) {
    const unsigned theirs = shuffle(kept, leader + (first + k) / own);
#pragma unroll
    for (int i = 0; i < own; i++) factors[k + i] = theirs >> (count * i + word) & 1 ? mask.scale : 0.0f;
  }
}

// Returns the factor of one element; costs a whole block.
__device__ inline float draw_one(const DropoutMask& mask, int64_t row, int64_t c) {
  using namespace mask_runs;
  const PhiloxBlock words = philox(mask.drawn.key, mask.drawn.first_row + static_cast<uint64_t>(row),
                                   static_cast<uint64_t>(c / group * apart + c % apart));
  const auto word = c % group / apart;  // an index known only at run time would put the words into local memory
  const uint32_t mine = word < 2 ? (word < 1 ? words[0] : words[1]) : (word < 3 ? words[2] : words[3]);
  return mine < mask.threshold ? 0.0f : mask.scale;
}

}  // namespace megalith::cuda
