// Dropout's mask on attention's probabilities, as bits of the threads that hold them (dropout.h defines the mask).
#pragma once

#include "kernels/attention/attention_cuda.h"
#include "kernels/elementwise/drawn_cuda.h"
#include "kernels/elementwise/philox.h"

namespace megalith::cuda::attention {

// Dropout as kernel arguments; queries and keys count from the start of their sequence.
struct Mask {
  Drawn drawn;
  uint32_t threshold = 0;
  float scale = 1, unscaled = 1;  // the factor of kept elements, and its inverse

  Mask() = default;
  explicit Mask(const Dropout& d)
      : drawn(d),
        threshold(dropout_threshold(d)),
        scale(static_cast<float>(1.0 / (1.0 - d.p))),
        unscaled(static_cast<float>(1.0 - d.p)) {}
};
struct HeadMask {
  Mask mask;
  uint64_t first_row, group;

  __device__ HeadMask(const Mask& m, const Heads& s, int64_t b, int64_t h)
      : mask(m), group(static_cast<uint64_t>(s.first_head + h) << 32) {
    mask.drawn.read();
    first_row = mask.drawn.first_row + static_cast<uint64_t>(b * s.T);
  }
  // Returns the words of keys 64 n + c, 64 n + c + 16, + 32 and + 48, for column = 16 n + c.
  __device__ PhiloxBlock words(int64_t query, int64_t column) const {
    return philox(mask.drawn.key, first_row + static_cast<uint64_t>(query), group + static_cast<uint64_t>(column));
  }
  __device__ bool keeps(int64_t query, int64_t key) const {
    const PhiloxBlock four = words(query, key / 64 * 16 + key % 16);
    const int64_t which = key % 64 / 16;
    const uint32_t low = which & 1 ? four[1] : four[0], high = which & 1 ? four[3] : four[2];
    return (which & 2 ? high : low) >= mask.threshold;
  }
};

// Returns the mask of a fragment of scores, 16 queries from `query` on by 64 keys from `key` on: bit 4 * j + e says
// whether element e of the j-th 8 keys is kept. The loop is not unrolled, to save registers.
__device__ inline unsigned kept_bits(const HeadMask& mask, int query, int key) {
  unsigned bits = 0;
#pragma unroll 1
  for (int i = 0; i < 8; i++) {  // element e of the eights j, j + 2, j + 4 and j + 6
    const int j = i / 4, e = i % 4;
    const PhiloxBlock four = mask.words(query + fragment_row(e), key / 64 * 16 + j * 8 + fragment_column(e));
#pragma unroll
    for (int w = 0; w < 4; w++)
      bits |= static_cast<unsigned>(four[static_cast<size_t>(w)] >= mask.mask.threshold) << (8 * w + i);
  }
  return bits;
}

// Masks for 16 * ms queries and tiles of at most 64 keys. The bits are drawn once for 64 keys.
template <int ms>
struct KeptOfKeys {
  unsigned bits[ms];
  int drawn = -1;  // the 64 keys whose bits are held

  __device__ void draw(const HeadMask& mask, int query, int key) {
    if (key / 64 == drawn) return;
    drawn = key / 64;
#pragma unroll
    for (int m = 0; m < ms; m++) bits[m] = kept_bits(mask, query + 16 * m, drawn * 64);
  }
  // Returns the bits of the keys from `key` on, a multiple of 8.
  __device__ unsigned from(int m, int key) const { return bits[m] >> key % 64 / 2; }
};

// Draws the mask for a block whose warps own 16 keys each and take 8 * draws queries at a time, from `query` on: 4 *
// draws bits for each thread, bit 4 * j + e for element e of the j-th 8 queries. The four words of a draw belong to
// keys of four warps, which own 64 keys from `key` on, the first a multiple of four: a lane draws a quarter of the bits
// for its counterpart in each. kept_of() may follow a barrier. kept: uint16 (threads, 4), `draws` bits each.
template <int draws>
__device__ void draw_kept(uint16_t* kept, const HeadMask& mask, int query, int key) {
  static_assert(draws <= 16);
  const int four_warps = warp_index() / 4, quarter = warp_index() % 4;
  unsigned bits[4] = {};
#pragma unroll 1
  for (int i = 0; i < draws; i++) {
    const int n = quarter * draws + i;
    const PhiloxBlock four =
        mask.words(query + n / 4 * 8 + fragment_column(n % 4), key / 64 * 16 + fragment_row(n % 4));
#pragma unroll
    for (int w = 0; w < 4; w++)
      bits[w] |= static_cast<unsigned>(four[static_cast<size_t>(w)] >= mask.mask.threshold) << i;
  }
#pragma unroll
  for (int w = 0; w < 4; w++) {
    const int thread = (four_warps * 4 + w) * warp_size + lane_index();
    store(kept + 4 * thread + quarter, Vector<uint16_t, 1>{static_cast<uint16_t>(bits[w])});
  }
}
constexpr int64_t kept_bytes(int threads) { return threads * 4 * static_cast<int64_t>(sizeof(uint16_t)); }
// Returns this thread's bits of `quarters` quarters, at most 32 bits.
template <int draws, int quarters>
__device__ unsigned kept_of(const uint16_t* kept, int quarter = 0) {
  static_assert(draws * quarters <= 32);
  const Vector<uint16_t, quarters> parts = load<quarters>(kept + 4 * threadIdx.x + quarter);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < quarters; i++) bits |= unsigned{parts[i]} << (draws * i);
  return bits;
}

// Zeroes the dropped elements of 8 * count columns of a fragment, beginning with the `first`-th eight.
template <int count, int n>
__device__ void drop(float (&scores)[n][4], unsigned kept, int first = 0) {
#pragma unroll
  for (int i = 0; i < 4 * count; i++)
    if (!(kept >> i & 1)) scores[first + i / 4][i % 4] = 0;
}

inline Mask mask_of(const Dropout& d) { return d.active() ? Mask(d) : Mask(); }

}  // namespace megalith::cuda::attention
