// What dropout keeps of attention's probabilities, as bits of the threads that hold them (dropout.h has the mask).
#pragma once

#include "kernels/attention_cuda.h"
#include "kernels/philox.h"

namespace megalith::cuda::attention {

// The mask of dropout.h: query and key count from the sequence's first.
struct Mask {
  uint64_t key = 0, first_row = 0;
  uint32_t threshold = 0;
  float scale = 1;

  Mask() = default;
  explicit Mask(const Dropout& d)
      : key(dropout_key(d)),
        first_row(static_cast<uint64_t>(d.first_row)),
        threshold(dropout_threshold(d)),
        scale(static_cast<float>(1.0 / (1.0 - d.p))) {}
};
struct HeadMask {
  Mask mask;
  uint64_t first_row, group;

  __device__ HeadMask(const Mask& m, const Heads& s, int64_t b, int64_t h)
      : mask(m),
        first_row(m.first_row + static_cast<uint64_t>(b * s.T)),
        group(static_cast<uint64_t>(s.first_head + h) << 32) {}
  // The words of keys 64 n + c, 64 n + c + 16, + 32 and + 48, for column = 16 n + c.
  __device__ PhiloxBlock words(int64_t query, int64_t column) const {
    return philox(mask.key, first_row + static_cast<uint64_t>(query), group + static_cast<uint64_t>(column));
  }
  __device__ bool keeps(int64_t query, int64_t key) const {
    const PhiloxBlock four = words(query, key / 64 * 16 + key % 16);
    const int64_t which = key % 64 / 16;
    const uint32_t low = which & 1 ? four[1] : four[0], high = which & 1 ? four[3] : four[2];
    return (which & 2 ? high : low) >= mask.threshold;
  }
};

// Of a fragment of 16 rows of scores, keys or queries from `own` on, by 8 * columns of the other from `other` on, of
// which that is a multiple: bit 4 * j + e says whether element e of the j-th 8 columns is kept. The loops stay loops:
// what they hold is all in use.
template <bool of_keys, int columns = 8>
__device__ unsigned kept_bits(const HeadMask& mask, int own, int other) {
  static_assert(columns == 2 || columns == 4 || columns == 8);
  unsigned bits = 0;
  if constexpr (of_keys) {
#pragma unroll 1
    for (int i = 0; i < 4 * columns; i++) {
      const int64_t query = other + i / 4 * 8 + fragment_column(i % 4), key = own + fragment_row(i % 4);
      bits |= static_cast<unsigned>(mask.keeps(query, key)) << i;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < 8; i++) {  // element e of the columns j, j + 2, j + 4 and j + 6
      const int j = i / 4, e = i % 4;
      const PhiloxBlock four = mask.words(own + fragment_row(e), other / 64 * 16 + j * 8 + fragment_column(e));
      const int first = columns == 8 ? 0 : other % 64 / 16;
#pragma unroll
      for (int w = 0; w < 4; w++)
        if (w >= first && w < first + columns / 2)
          bits |= static_cast<unsigned>(four[static_cast<size_t>(w)] >= mask.mask.threshold) << (8 * (w - first) + i);
    }
  }
  return bits;
}

// What is not kept of 8 * count columns of a fragment, from the `first` eight on; by bit 4 * j + e.
template <int count, int n>
__device__ void drop(float (&scores)[n][4], unsigned kept, int first = 0) {
#pragma unroll
  for (int i = 0; i < 4 * count; i++)
    if (!(kept >> i & 1)) scores[first + i / 4][i % 4] = 0;
}

// Host: what every kernel is given.
inline Mask mask_of(const Dropout& d) { return d.active() ? Mask(d) : Mask(); }

}  // namespace megalith::cuda::attention
