// A block owns 128 queries of one head and goes over the keys in tiles of 64, of which the next is on its way while one
// is used. A warp owns 32 queries, so that each fragment of keys or values that it loads serves two products; scores
// and probabilities never leave its registers.
#include "kernels/attention_cuda.h"

namespace megalith::cuda {

namespace {
using namespace attention;
constexpr int warps = 4, threads = warps * warp_size, ms = 2, warp_rows = 16 * ms, query_tile = warps * warp_rows;
constexpr int key_tile = 64, columns = 4, depth = columns / 2;

template <int D>
constexpr int64_t shared_bytes = tile_bytes<D>(query_tile) + 4 * tile_bytes<D>(key_tile);

__device__ float row_max(float v) {
  v = fmaxf(v, shuffle_xor(v, 1));
  return fmaxf(v, shuffle_xor(v, 2));
}
__device__ float row_sum(float v) {
  v += shuffle_xor(v, 1);
  return v + shuffle_xor(v, 2);
}

// One step of the running softmax of 16 rows: scores become exp(score - top), and what came before is rescaled.
template <int n>
__device__ void softmax_step(float (&scores)[columns][4], float (&top)[2], float (&sum)[2], float (&sums)[n][4],
                             float to_log2) {
  float rescale[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = top[half];
#pragma unroll
    for (int j = 0; j < columns; j++) largest = fmaxf(largest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
    largest = row_max(largest);  // finite: every query sees the first key
    const float shift = largest * to_log2;
    rescale[half] = fast_exp2((top[half] - largest) * to_log2);
    float part = 0;
#pragma unroll
    for (int j = 0; j < columns; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) {
        scores[j][e] = fast_exp2(fmaf(scores[j][e], to_log2, -shift));
        part += scores[j][e];
      }
    top[half] = largest;
    sum[half] = fmaf(sum[half], rescale[half], part);
  }
  if (!any(rescale[0] != 1 || rescale[1] != 1)) return;  // so it is for most keys after the first
#pragma unroll
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) sums[j][e] *= rescale[e / 2];
}

template <int D, bool dropped>
__global__ void __launch_bounds__(threads, 2)
    forward_kernel(bfloat16* out, float* lse, const bfloat16* qkv, Heads s, Mask mask, float scale) {
  const Place at(s, blockIdx.z, blockIdx.y);
  const HeadMask head_mask(mask, s, blockIdx.z, blockIdx.y);
  const bfloat16 *q = qkv + at.qkv, *k = q + at.out_stride, *v = k + at.out_stride;
  const int T = static_cast<int>(s.T);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * query_tile;  // the longest first
  const int mine = first + warp_index() * warp_rows;
  bfloat16* queries = shared_memory<bfloat16>();
  const auto keys = [](int i) {
    return shared_memory<bfloat16>(tile_bytes<D>(query_tile) + i % 2 * tile_bytes<D>(key_tile));
  };
  const auto values = [](int i) {
    return shared_memory<bfloat16>(tile_bytes<D>(query_tile) + (2 + i % 2) * tile_bytes<D>(key_tile));
  };
  const auto copy_keys = [&](int i) {
    copy_tile<D, key_tile, threads>(keys(i), k, at.stride, i * key_tile, T);
    copy_tile<D, key_tile, threads>(values(i), v, at.stride, i * key_tile, T);
    copy_async_commit();
  };
  copy_tile<D, query_tile, threads>(queries, q, at.stride, first, T);
  copy_keys(0);
  queries += warp_index() * warp_rows * tile_stride<D>;

  const float to_log2 = scale * log2_e;
  float sums[ms][D / 8][4] = {}, top[ms][2], sum[ms][2] = {};
#pragma unroll
  for (int m = 0; m < ms; m++) top[m][0] = top[m][1] = -infinity;
  const int last_query = first + query_tile - 1 < T ? first + query_tile - 1 : T - 1;
  const int tiles = last_query / key_tile + 1;
  for (int i = 0; i < tiles; i++) {
    copy_async_wait<0>();
    sync_threads();  // this tile is there, and everyone is done with the one before
    if (i + 1 < tiles) copy_keys(i + 1);
    const int first_key = i * key_tile;
    if (first_key > mine + warp_rows - 1) continue;
    [[maybe_unused]] unsigned kept[ms];
    if constexpr (dropped) {
      for (int m = 0; m < ms; m++) kept[m] = kept_bits<false>(head_mask, mine + 16 * m, first_key);
    }
    // Half a tile at a time: the scores of all of it would not fit into registers beside the sums.
#pragma unroll 1
    for (int part = 0; part < key_tile; part += columns * 8) {
      const int key = first_key + part;
      if (key > mine + warp_rows - 1) break;
      float scores[ms][columns][4] = {};
      multiply_rows<D>(scores, queries, keys(i) + part * tile_stride<D>);
      unsigned weights[ms][depth][4];
#pragma unroll
      for (int m = 0; m < ms; m++) {
        const int seen = mine + 16 * m - key;  // keys up to the first query's own, counted from the part's first
        if (columns * 8 - 1 > seen) {
#pragma unroll
          for (int j = 0; j < columns; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (j * 8 + fragment_column(e) > seen + fragment_row(e)) scores[m][j][e] = -infinity;
        }
        softmax_step(scores[m], top[m], sum[m], sums[m], to_log2);
        if constexpr (dropped) {  // what is kept is scaled at the end, with the row
#pragma unroll
          for (int n = 0; n < 4 * columns; n++)
            if (!(kept[m] >> n & 1)) scores[m][n / 4][n % 4] = 0;
          kept[m] >>= 4 * columns;
        }
#pragma unroll
        for (int j = 0; j < columns; j++)
#pragma unroll
          for (int half = 0; half < 2; half++)
            weights[m][j / 2][j % 2 * 2 + half] = pack(scores[m][j][2 * half], scores[m][j][2 * half + 1]);
      }
      multiply_weights<D>(sums, weights, values(i) + part * tile_stride<D>);
    }
  }
#pragma unroll
  for (int m = 0; m < ms; m++) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float total = row_sum(sum[m][half]);
      factor[half] = mask.scale / total;
      const int query = mine + 16 * m + fragment_row(2 * half);
      if (lane_index() % 4 == 0 && query < T) lse[at.statistics + query] = fmaf(top[m][half], scale, logf(total));
    }
    write_rows<D>(out + at.out, at.out_stride, mine + 16 * m, T, sums[m], factor, queries + 16 * m * tile_stride<D>);
  }
}
}  // namespace

void attention_forward(Queue queue, Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d) {
  const Heads heads{dims.T, dims.H, dims.D, dims.first_head};
  const float scale = 1.0f / std::sqrt(static_cast<float>(dims.D));
  const bool fast = qkv.dtype() == DType::bf16 && in_vectors({out, qkv}) && with_head_size(dims.D, [&](auto D) {
                      with_mask(d, [&](auto dropped) {
                        launch(queue, {"attention_forward", grid_of(dims, query_tile), threads, shared_bytes<D>},
                               forward_kernel<D, dropped>, out.data<bfloat16>(), lse.data<float>(),
                               qkv.data<bfloat16>(), heads, d.active() ? Mask(d) : Mask(), scale);
                      });
                    });
  if (!fast) plain_forward(queue, out, lse, qkv, dims, d);
}

}  // namespace megalith::cuda
