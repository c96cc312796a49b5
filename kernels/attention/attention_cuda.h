// Parts shared by the attention kernels: the offsets of a head, the online softmax, and code for tiles of rows that
// does not depend on the matrix instructions (attention_warp_tiles.h, attention_warpgroup_tiles.h). Dropout is in
// attention_mask.h.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/hopper_grid.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda::attention {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Offsets of a head's q, k and v in qkv (N, (H + 2K) * D), with `stride` elements from one position to the next; in
// tensors (N, H*D), with `out_stride`; and in (B, H, T), starting at `statistics`.
struct Heads {
  int64_t T, H, D, first_head, K;
};
struct HeadOffsets {
  int64_t qkv, stride, keys, values, out, out_stride, statistics;
  __device__ HeadOffsets(const Heads& s, int64_t b, int64_t h)
      : qkv(b * s.T * (s.H + 2 * s.K) * s.D + h * s.D),
        stride((s.H + 2 * s.K) * s.D),
        keys(b * s.T * stride + (s.H + h / (s.H / s.K)) * s.D),
        values(keys + s.K * s.D),
        out(b * s.T * s.H * s.D + h * s.D),
        out_stride(s.H * s.D),
        statistics((b * s.H + h) * s.T) {}
};

// Begins to copy rows [first, first + rows) of a head to a tile with the threads of a block or of a warpgroup; rows
// from T on become zeros. A thread stays in one column of vectors, so that it moves from row to row by constant steps.
template <class Tiles, int D, int rows, int threads, class E>
__device__ void copy_tile(E* tile, const E* head, int64_t stride, int first, int T) {
  constexpr int across = D == 64 ? 8 : 16, step = threads / across;
  static_assert(rows % step == 0 && step % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) % threads / across, c = static_cast<int>(threadIdx.x) % across * 8;
  if (c >= D) return;
  const E* from = head + int64_t{first + row} * stride + c;
  tile += Tiles::template at<rows>(row, c);
#pragma unroll
  for (int i = 0; i < rows; i += step) {
    copy_async(tile + i * Tiles::row_elements, from, first + row + i < T);
    from += step * stride;
  }
}

// In a product's fragment, lane i holds rows i / 4 and i / 4 + 8, columns 2 (i % 4) and the next.
__device__ inline int fragment_row(int element = 0) { return lane_index() / 4 + element / 2 * 8; }
__device__ inline int fragment_column(int element = 0) { return lane_index() % 4 * 2 + element % 2; }

// The score of a hidden key. It is finite: a row whose first tiles show nothing takes it for its maximum, and its sums
// vanish with the first visible score, exp(hidden - score) = 0. A power of two, so that hidden - hidden = 0 at any
// scale.
constexpr float hidden = -0x1p100f;

// Hides the keys that a fragment of scores, queries by keys, may not see: its first query sees the first `seen` + 1
// keys.
template <int n>
__device__ void hide_later(float (&scores)[n][4], int seen) {
  if (n * 8 - 1 <= seen) return;
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j * 8 + fragment_column(e) > seen + fragment_row(e)) scores[j][e] = hidden;
}
// As above, for a fragment of keys by queries whose first key is visible from query `from` on.
template <int n>
__device__ void hide_earlier(float (&scores)[n][4], int from) {
  if (from + 15 <= 0) return;
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j * 8 + fragment_column(e) < from + fragment_row(e)) scores[j][e] = -infinity;
}

// --- The document mask (attention.h). Kernels get a pointer, null without a mask, and load what they need for each
// tile: the pointer costs no register, and only tiles in which a document begins cost more than a comparison.

// The first visible key of each query of one sequence; queries beyond T repeat the last.
struct DocumentStarts {
  const int32_t* all;  // for all sequences; null: every query sees the first key
  int64_t T, b;

  __device__ DocumentStarts(const int32_t* starts, const Heads& s, int64_t sequence)
      : all(starts), T(s.T), b(sequence) {}
  __device__ explicit operator bool() const { return all != nullptr; }
  __device__ int of(int64_t query) const { return all ? all[b * T + (query < T ? query : T - 1)] : 0; }
  // Returns the first tile in [begin, end) without a query that sees this key, or `end`.
  __device__ int end_of(int key, int tile, int begin, int end) const {
    while (all && begin < end) {
      const int middle = (begin + end) / 2;
      if (of(middle * tile) > key)
        end = middle;
      else
        begin = middle + 1;
    }
    return end;
  }
};

// Hides the keys of earlier documents in a fragment of scores, queries from `query` on by keys from `key` on.
template <int n>
__device__ void hide_documents(float (&scores)[n][4], const DocumentStarts& starts, int query, int key) {
  if (starts.of(query + 15) <= key) return;
  const int begin[2] = {starts.of(query + fragment_row()) - key, starts.of(query + fragment_row(2)) - key};
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j * 8 + fragment_column(e) < begin[e / 2]) scores[j][e] = hidden;
}
// As above, for a fragment of keys by queries.
template <int n>
__device__ void hide_from_documents(float (&scores)[n][4], const DocumentStarts& starts, int key, int query) {
  if (starts.of(query + 8 * n - 1) <= key) return;
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int begin = starts.of(query + j * 8 + fragment_column(e)) - key;
      if (fragment_row() < begin) scores[j][e] = hidden;
      if (fragment_row(2) < begin) scores[j][2 + e] = hidden;
    }
}

__device__ inline float row_max(float v) {
  v = fmaxf(v, shuffle_xor(v, 1));
  return fmaxf(v, shuffle_xor(v, 2));
}
__device__ inline float row_sum(float v) {
  v += shuffle_xor(v, 1);
  return v + shuffle_xor(v, 2);
}

// One step of the online softmax of 16 rows: scores become exp(score - top), where top is the running maximum, and
// earlier sums are to be multiplied by `rescale`. In its first step every row has a visible column or `hidden` ones.
template <int n>
__device__ void softmax_step(float (&scores)[n][4], float (&top)[2], float (&sum)[2], float (&rescale)[2],
                             float to_log2) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float four[4] = {top[half], top[half], top[half], top[half]};  // four maxima, which do not wait for each other
#pragma unroll
    for (int j = 0; j < n; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) four[j % 2 * 2 + e] = fmaxf(four[j % 2 * 2 + e], scores[j][2 * half + e]);
    const float largest = row_max(fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3])));
    const float shift = largest * to_log2;
    rescale[half] = fast_exp2((top[half] - largest) * to_log2);
    float part = 0;
#pragma unroll
    for (int j = 0; j < n; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) {
        scores[j][e] = fast_exp2(fmaf(scores[j][e], to_log2, -shift));
        part += scores[j][e];
      }
    top[half] = largest;
    sum[half] = fmaf(sum[half], rescale[half], part);
  }
}
template <int n>
__device__ void rescale_rows(float (&sums)[n][4], const float (&rescale)[2]) {
  if (!any(rescale[0] != 1 || rescale[1] != 1)) return;  // true for most tiles after the first
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) sums[j][e] *= rescale[e / 2];
}

// Converts a product's fragment to left factors of the next product.
template <class E, int n>
__device__ void pack_weights(unsigned (&weights)[n / 2][4], const float (&d)[n][4]) {
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) weights[j / 2][j % 2 * 2 + half] = pack<E>(d[j][2 * half], d[j][2 * half + 1]);
}

// Writes d, scaled by factor[half of the row], to the head's rows starting at `first`, through a warp's rows of a tile.
template <class Tiles, int D, int rows, class E>
__device__ void write_rows(E* head, int64_t stride, int first, int T, const float (&d)[D / 8][4],
                           const float (&factor)[2], E* tile, int row) {
  sync_warp();
#pragma unroll
  for (int j = 0; j < D / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      E* to = tile + Tiles::template at<rows>(row + fragment_row(2 * half), j * 8 + fragment_column());
      store(reinterpret_cast<unsigned*>(to),
            Vector<unsigned, 1>{pack<E>(d[j][2 * half] * factor[half], d[j][2 * half + 1] * factor[half])});
    }
  sync_warp();
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
    const int unit = i * warp_size + lane_index(), r = unit / (D / 8), c = unit % (D / 8) * 8;
    if (first + r < T)
      store(head + int64_t{first + r} * stride + c, load<8>(tile + Tiles::template at<rows>(row + r, c)));
  }
}

// Finishes 16 rows of attention: out is the sums over the softmax's total, lse its logarithm.
template <class Tiles, int D, int rows, class E>
__device__ void finish_rows(E* out, float* lse, const HeadOffsets& at, int first, int T, const float (&sums)[D / 8][4],
                            const float (&top)[2], const float (&sum)[2], float scale, float mask_scale, E* tile,
                            int row) {
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = row_sum(sum[half]);
    factor[half] = mask_scale / total;
    const int query = first + fragment_row(2 * half);
    if (lane_index() % 4 == 0 && query < T) lse[at.statistics + query] = fmaf(top[half], scale, logf(total));
  }
  write_rows<Tiles, D, rows>(out + at.out, at.out_stride, first, T, sums, factor, tile, row);
}

// Host: returns whether the tiled kernels can run; plain_forward and plain_backward serve the rest.
inline bool fits_tiles(const AttentionDims& dims, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (!is_16_bit(t.dtype()) || t.dtype() != tensors.begin()->dtype()) return false;
  return has_tiles(dims.D) && in_vectors(tensors);
}
// Host: calls f(dropped) with a constant; and f(E{}, D, dropped) with the element type, 16 bits, and the head size.
template <class F>
void with_mask(const Dropout& d, F&& f) {
  if (d.active()) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}
template <class F>
void with_constants(DType type, const AttentionDims& dims, const Dropout& d, F&& f) {
  const auto with_size = [&](auto D) {
    with_mask(d, [&](auto dropped) { with_16_bits(type, [&](auto tag) { f(tag, D, dropped); }); });
  };
  switch (dims.D) {
    case 64: return with_size(std::integral_constant<int, 64>{});
    case 80: return with_size(std::integral_constant<int, 80>{});
    case 96: return with_size(std::integral_constant<int, 96>{});
    case 112: return with_size(std::integral_constant<int, 112>{});
    case 128: return with_size(std::integral_constant<int, 128>{});
    default: FAIL("no attention kernel with tiles of {} columns", dims.D);
  }
}

inline Heads heads_of(const AttentionDims& dims) { return {dims.T, dims.H, dims.D, dims.first_head, dims.kv()}; }
inline const int32_t* pointer_to(const Tensor& starts) { return starts.empty() ? nullptr : starts.data<int32_t>(); }
inline float scale_of(const AttentionDims& dims) { return 1.0f / std::sqrt(static_cast<float>(dims.D)); }

// Host: returns a grid with one block for each tile of each head, or of each of `heads` key-value heads.
inline dim3 grid_of(const AttentionDims& dims, int rows, int64_t heads) {
  CHECK(dims.H < 65536 && dims.B < 65536, "attention of {} sequences with {} heads; a launch takes 65535 of each",
        dims.B, dims.H);
  CHECK(dims.T < int64_t{1} << 30, "attention over {} positions; the CUDA kernels count to 2^30", dims.T);
  return {blocks_for(dims.T, rows), static_cast<unsigned>(heads), static_cast<unsigned>(dims.B)};
}
inline dim3 grid_of(const AttentionDims& dims, int rows) { return grid_of(dims, rows, dims.H); }

// Host: refuses more tiles of `rows` positions, of all heads, than a HeadOrder counts.
inline void check_tiles(const AttentionDims& dims, int rows) {
  const int64_t heads = dims.B * dims.H, tiles = ceil_div(dims.T, rows);
  CHECK(
      dims.T < int64_t{1} << 30 && heads * tiles < int64_t{1} << 31,
      "attention of {} heads over {} positions in tiles of {}; the CUDA kernels count positions to 2^30, and a launch "
      "takes 2^31 - 1 tiles",
      heads, dims.T, rows);
}
// Host: returns the order in which these blocks take heads, at most `most` at once.
inline HeadOrder order_of(const AttentionDims& dims, int rows, int64_t most) {
  check_tiles(dims, rows);
  return head_order(dims.B * dims.H, ceil_div(dims.T, rows), most);
}

// Hopper's kernels, for what fits_tiles accepts: attention_forward_hopper.cu, attention_backward_hopper.cu.
void hopper_forward(Queue queue, const AttentionForward& op);
// The flags in the scratch memory of the backward pass are zeroed before it.
inline BackwardGrid grid_of_backward(const AttentionDims& dims) {
  check_tiles(dims, backward_tile);
  return backward_grid({dims.B * dims.H, dims.B * dims.kv(), dims.T, dims.D});
}
void hopper_backward(Queue queue, const AttentionBackward& op);

// Kernels without tensor cores, for every head size and type: attention_plain.cu.
void plain_forward(Queue queue, const AttentionForward& op);
void plain_backward(Queue queue, const AttentionBackward& op);

}  // namespace megalith::cuda::attention
