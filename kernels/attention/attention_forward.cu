// A block owns 128 queries of one head and visits the keys in tiles of 64, copying the next while one is used; or of
// 32, if two blocks then fit on an SM and tensor cores work for one warp during another's softmax. A warp owns 32
// queries, so that each fragment of keys or values serves two products; scores and probabilities stay in its registers.
// (Method: FlashAttention-2, arXiv:2307.08691.)
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_warp_tiles.h"

namespace megalith::cuda {

namespace {
using namespace attention;
constexpr int warps = 4, threads = warps * warp_size, ms = 2, warp_rows = 16 * ms, query_tile = warps * warp_rows;
constexpr int columns = 4, depth = columns / 2, blocks = 2;  // per SM

template <class E, int D, int key_tile, bool dropped>
__global__ void __launch_bounds__(threads, blocks)
    forward_kernel(E* out, float* lse, const E* qkv, const int32_t* starts_, Heads s, Mask mask, float scale) {
  using Tiles = WarpTiles<E, D>;
  const HeadOffsets at(s, blockIdx.z, blockIdx.y);
  const DocumentStarts starts(starts_, s, blockIdx.z);
  const E *q = qkv + at.qkv, *k = qkv + at.keys, *v = qkv + at.values;
  const int T = static_cast<int>(s.T);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * query_tile;  // the longest tiles go first
  const int mine = first + warp_index() * warp_rows;
  constexpr int64_t query_bytes = Tiles::bytes(query_tile), key_bytes = Tiles::bytes(key_tile);
  E* queries = shared_memory<E>();
  const auto keys = [](int i) { return shared_memory<E>(query_bytes + i % 2 * key_bytes); };
  const auto values = [](int i) { return shared_memory<E>(query_bytes + (2 + i % 2) * key_bytes); };
  const auto copy_keys = [&](int i) {
    copy_tile<Tiles, D, key_tile, threads>(keys(i), k, at.stride, i * key_tile, T);
    copy_tile<Tiles, D, key_tile, threads>(values(i), v, at.stride, i * key_tile, T);
    copy_async_commit();
  };
  copy_tile<Tiles, D, query_tile, threads>(queries, q, at.stride, first, T);
  const int begin = starts.of(first) / key_tile;
  copy_keys(begin);

  const float to_log2 = scale * log2_e;
  float sums[ms][D / 8][4] = {}, top[ms][2], sum[ms][2] = {};
#pragma unroll
  for (int m = 0; m < ms; m++) top[m][0] = top[m][1] = -infinity;
  [[maybe_unused]] KeptOfKeys<ms> kept;
  const int last_query = first + query_tile - 1 < T ? first + query_tile - 1 : T - 1;
  const int tiles = last_query / key_tile + 1;
  for (int i = begin; i < tiles; i++) {
    copy_async_wait<0>();
    sync_threads();  // this tile has arrived, and all threads are done with the previous one
    if (i + 1 < tiles) copy_keys(i + 1);
    const int first_key = i * key_tile;
    if (first_key > mine + warp_rows - 1 || first_key + key_tile <= starts.of(mine)) continue;
    if constexpr (dropped) {  // loaded now rather than held in registers
      kept.draw(HeadMask(mask, s, blockIdx.z, blockIdx.y), mine, first_key);
    }
    // Take 32 keys at a time: the scores of 64 do not fit into registers together with the sums.
#pragma unroll 1
    for (int part = 0; part < key_tile; part += columns * 8) {
      const int key = first_key + part;
      if (key > mine + warp_rows - 1) break;
      float scores[ms][columns][4];
      Tiles::template multiply_rows<query_tile, key_tile>(scores, queries,
                                                          keys(i) + Tiles::template at<key_tile>(part, 0));
      unsigned weights[ms][depth][4];
#pragma unroll
      for (int m = 0; m < ms; m++) {
        float rescale[2];
        hide_later(scores[m], mine + 16 * m - key);
        if (starts) hide_documents(scores[m], starts, mine + 16 * m, key);
        softmax_step(scores[m], top[m], sum[m], rescale, to_log2);
        rescale_rows(sums[m], rescale);
        if constexpr (dropped) {  // kept elements are scaled at the end, with the row
          drop<columns>(scores[m], kept.from(m, key));
        }
        pack_weights<E>(weights[m], scores[m]);
      }
      Tiles::template multiply_weights<key_tile>(sums, weights, values(i) + Tiles::template at<key_tile>(part, 0));
    }
  }
#pragma unroll
  for (int m = 0; m < ms; m++)
    finish_rows<Tiles, D, query_tile>(out, lse, at, mine + 16 * m, T, sums[m], top[m], sum[m], scale, mask.scale,
                                      queries, mine - first + 16 * m);
}
}  // namespace

void run(Queue queue, const AttentionForward& op) {
  if (!fits_tiles(op.dims, {op.out, op.qkv})) return plain_forward(queue, op);
  if (queue.chip.generation == 9) return hopper_forward(queue, op);
  with_constants(op.qkv.dtype(), op.dims, op.dropout, [&](auto tag, auto D, auto dropped) {
    using E = decltype(tag);
    using Memory = WarpTiles<E, D>;
    const auto bytes = [](int key_tile) { return Memory::bytes(query_tile) + 4 * Memory::bytes(key_tile); };
    with_rows<blocks, columns * 8>(queue, bytes, [&](auto key_tile) {
      launch(queue, {op.name, grid_of(op.dims, query_tile), threads, bytes(key_tile)},
             forward_kernel<E, D, key_tile, dropped>, op.out.data<E>(), op.lse.data<float>(), op.qkv.data<E>(),
             pointer_to(op.starts), heads_of(op.dims), mask_of(op.dropout), scale_of(op.dims));
    });
  });
}

}  // namespace megalith::cuda
