// What the attention kernels share: where a head lies, its dropout mask, and tiles of rows for the tensor cores.
//
// A tile is `rows` rows of one head in shared memory. Its rows lie an odd number of 16-byte pieces apart, for every
// head size that is a multiple of 16, so that the 8 rows of a matrix load come from different banks; and a fragment's
// place is the lane's own plus a constant.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/device_cuda.h"

namespace megalith::cuda::attention {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.4426950408889634f;

// A head of qkv (N, 3*H*D): q, k and v of position t are `stride` elements after those of t - 1. Tensors (N, H*D) have
// a third of that stride, and (B, H, T) begin at `statistics`.
struct Heads {
  int64_t T, H, D, first_head;
};
struct Place {
  int64_t qkv, stride, out, out_stride, statistics;
  __device__ Place(const Heads& s, int64_t b, int64_t h)
      : qkv(b * s.T * 3 * s.H * s.D + h * s.D),
        stride(3 * s.H * s.D),
        out(b * s.T * s.H * s.D + h * s.D),
        out_stride(s.H * s.D),
        statistics((b * s.H + h) * s.T) {}
};

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

template <int D>
constexpr int tile_stride = D + 8;  // elements
template <int D>
constexpr int64_t tile_bytes(int rows) {
  return int64_t{rows} * tile_stride<D> * static_cast<int64_t>(sizeof(bfloat16));
}

// Begins to copy rows [first, first + rows) of a head, by all threads of the block; rows from T on become zeros. A
// thread keeps to one column of pieces, so that it goes from row to row by constant steps.
template <int D, int rows, int threads>
__device__ void copy_tile(bfloat16* tile, const bfloat16* head, int64_t stride, int first, int T) {
  constexpr int across = D == 64 ? 8 : 16, step = threads / across;
  static_assert(rows % step == 0);
  const int row = static_cast<int>(threadIdx.x) / across, c = static_cast<int>(threadIdx.x) % across * 8;
  if (c >= D) return;
  const bfloat16* from = head + int64_t{first + row} * stride + c;
  tile += row * tile_stride<D> + c;
#pragma unroll
  for (int i = 0; i < rows; i += step) {
    copy_async(tile + i * tile_stride<D>, from, first + row + i < T);
    from += step * stride;
  }
}

// Row and column of the piece that this lane gives to a load of 16x16 elements, so that its four registers are
//   a left factor's fragment, rows by depth; or, transposed, two right factors' of a tile with rows of depth
__device__ inline int lane_row() { return lane_index() % 16; }
__device__ inline int lane_column() { return lane_index() / 16 * 8; }
//   two right factors' fragments of a tile whose rows are their columns
__device__ inline int column_lane_row() { return lane_index() / 16 * 8 + lane_index() % 8; }
__device__ inline int column_lane_column() { return lane_index() / 8 % 2 * 8; }

// Two products side by side: a times the two right factors that one matrix load brings.
__device__ inline void multiply_add_two(float (&d0)[4], float (&d1)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[4]) {
  const unsigned b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
  multiply_add(d0, a, b0);
  multiply_add(d1, a, b1);
}

// d[m] (16 x 8n each) += a's rows 16 m.. times b's rows, transposed; a and b: tiles, at this warp's first row.
template <int D, int ms, int n>
__device__ void multiply_rows(float (&d)[ms][n][4], const bfloat16* a, const bfloat16* b) {
  a += lane_row() * tile_stride<D> + lane_column();
  b += column_lane_row() * tile_stride<D> + column_lane_column();
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    unsigned left[ms][4];
#pragma unroll
    for (int m = 0; m < ms; m++) load_matrix(left[m], a + m * 16 * tile_stride<D> + c);
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      unsigned right[4];
      load_matrix(right, b + j * 8 * tile_stride<D> + c);
#pragma unroll
      for (int m = 0; m < ms; m++) multiply_add_two(d[m][j], d[m][j + 1], left[m], right);
    }
  }
}

// d[m] (16 x D each) += a[m] (16 x 16 depth, as left factors' fragments) times b's rows.
template <int D, int ms, int depth>
__device__ void multiply_weights(float (&d)[ms][D / 8][4], const unsigned (&a)[ms][depth][4], const bfloat16* b) {
  b += lane_row() * tile_stride<D> + lane_column();
#pragma unroll
  for (int k = 0; k < depth; k++)
#pragma unroll
    for (int j = 0; j < D / 8; j += 2) {
      unsigned right[4];
      load_matrix_transposed(right, b + k * 16 * tile_stride<D> + j * 8);
#pragma unroll
      for (int m = 0; m < ms; m++) multiply_add_two(d[m][j], d[m][j + 1], a[m][k], right);
    }
}

// Of a product's fragment, lane i holds rows i / 4 and i / 4 + 8, columns 2 (i % 4) and the next.
__device__ inline int fragment_row(int element = 0) { return lane_index() / 4 + element / 2 * 8; }
__device__ inline int fragment_column(int element = 0) { return lane_index() % 4 * 2 + element % 2; }

// Of a fragment of 16 x 64 scores, whose rows are keys or queries and begin at `own`: bit 4 * j + e says whether
// element e of the j-th 8 columns is kept. `other` is a multiple of 64. The loops stay loops: what they hold is all in
// use.
template <bool of_keys>
__device__ unsigned kept_bits(const HeadMask& mask, int own, int other) {
  unsigned bits = 0;
  if constexpr (of_keys) {
#pragma unroll 1
    for (int i = 0; i < 32; i++) {
      const int64_t query = other + i / 4 * 8 + fragment_column(i % 4), key = own + fragment_row(i % 4);
      bits |= static_cast<unsigned>(mask.keeps(query, key)) << i;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < 8; i++) {  // element e of the columns j, j + 2, j + 4 and j + 6
      const int j = i / 4, e = i % 4;
      const PhiloxBlock four = mask.words(own + fragment_row(e), other / 4 + j * 8 + fragment_column(e));
#pragma unroll
      for (int w = 0; w < 4; w++)
        bits |= static_cast<unsigned>(four[static_cast<size_t>(w)] >= mask.mask.threshold) << (8 * w + i);
    }
  }
  return bits;
}

// Writes 16 rows by way of the tile at `room`, which this warp alone uses: d times factor[row i / 4 or i / 4 + 8].
template <int D>
__device__ void write_rows(bfloat16* head, int64_t stride, int first, int T, const float (&d)[D / 8][4],
                           const float (&factor)[2], bfloat16* room) {
  sync_warp();
#pragma unroll
  for (int j = 0; j < D / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      bfloat16* to = room + fragment_row(2 * half) * tile_stride<D> + j * 8 + fragment_column();
      store(reinterpret_cast<unsigned*>(to),
            Vector<unsigned, 1>{pack(d[j][2 * half] * factor[half], d[j][2 * half + 1] * factor[half])});
    }
  sync_warp();
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
    const int piece = i * warp_size + lane_index(), row = piece / (D / 8), c = piece % (D / 8) * 8;
    if (first + row < T) store(head + int64_t{first + row} * stride + c, load<8>(room + row * tile_stride<D> + c));
  }
}

// Host: f(D) as a constant for the head sizes of the tensor cores' kernels; false for others.
template <class F>
bool with_head_size(int64_t D, F&& f) {
  switch (D) {
    case 64: f(std::integral_constant<int, 64>{}); return true;
    case 80: f(std::integral_constant<int, 80>{}); return true;
    case 96: f(std::integral_constant<int, 96>{}); return true;
    case 112: f(std::integral_constant<int, 112>{}); return true;
    case 128: f(std::integral_constant<int, 128>{}); return true;
    default: return false;
  }
}
template <class F>
void with_mask(const Dropout& d, F&& f) {
  if (d.active()) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

// Host: one block for each tile of each head.
inline dim3 grid_of(const AttentionDims& dims, int rows) {
  CHECK(dims.H < 65536 && dims.B < 65536, "attention of {} sequences with {} heads; a launch takes 65535 of each",
        dims.B, dims.H);
  CHECK(dims.T < int64_t{1} << 30, "attention over {} positions; the CUDA kernels count to 2^30", dims.T);
  return {blocks_for(dims.T, rows), static_cast<unsigned>(dims.H), static_cast<unsigned>(dims.B)};
}

// For every head size and type, without tensor cores: attention_plain.cu.
void plain_forward(Queue queue, Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d);
void plain_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor lse, Tensor qkv,
                    const AttentionDims& dims, const Dropout& d);

}  // namespace megalith::cuda::attention
