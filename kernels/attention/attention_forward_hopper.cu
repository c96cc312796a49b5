// As attention_forward.cu, with warpgroup products: a block owns 128 queries of one head, a warpgroup 64 of them, and
// visits the keys in tiles of 128, from the diagonal down. The warpgroups alternate, the second half a tile behind the
// first: during one's softmax the other enqueues its next scores and its previous product of weights and values, so
// that the tensor cores always have work. (Method: FlashAttention-3, arXiv:2407.08608, section 3.1; with named
// barriers.)
//
// The turns are barriers of the block that all threads reach equally often, from one line, so that none waits in vain.
// In its turn the first warpgroup begins to copy the keys of the next tile, the second the values of the tile whose
// values it needs next. A buffer is overwritten only after both have waited, a barrier earlier, for the products that
// read it. Keys have two buffers; values, which are used a turn later, have three.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_warpgroup_tiles.h"

namespace megalith::cuda::attention {

namespace {
constexpr int threads = 2 * warpgroup_size, query_tile = 128;

// Small heads take half the keys at a time, so that two blocks share a processor: the softmax of one, and its first and
// last copies, overlap with the products of the other.
constexpr int blocks_of(int D, bool dropped) { return D <= (dropped ? 64 : 80) ? 2 : 1; }
constexpr int key_tile_of(int D, bool dropped) { return 128 / blocks_of(D, dropped); }

template <class Tiles, int key_tile>
constexpr int64_t shared_bytes = Tiles::bytes(query_tile) + 5 * Tiles::bytes(key_tile);

template <class E, int D, bool dropped>
__global__ void __launch_bounds__(threads, blocks_of(D, dropped))
    forward_kernel(E* out, float* lse, const E* qkv, const int32_t* starts_, HeadOrder order, Heads s, Mask mask,
                   float scale) {
  using Tiles = WarpgroupTiles<E, D>;
  constexpr int key_tile = key_tile_of(D, dropped), columns = key_tile / 8, depth = key_tile / 16;
  const auto [head, own] = order.of(static_cast<int>(blockIdx.x));
  const int H = static_cast<int>(s.H), b = head / H, h = head % H;
  const HeadOffsets at(s, b, h);
  const DocumentStarts starts(starts_, s, b);
  const E *q = qkv + at.qkv, *k = qkv + at.keys, *v = qkv + at.values;
  const int T = static_cast<int>(s.T);
  const int row = warp_index() * 16, mine = own * query_tile + row;
  const int first = starts.of(own * query_tile) / key_tile, last = ((own + 1) * query_tile - 1) / key_tile;
  constexpr int64_t query_bytes = Tiles::bytes(query_tile), key_bytes = Tiles::bytes(key_tile);
  E* queries = shared_memory<E>();
  const auto keys = [](int i) { return shared_memory<E>(query_bytes + i % 2 * key_bytes); };
  const auto values = [](int i) { return shared_memory<E>(query_bytes + (2 + i % 3) * key_bytes); };
  const bool second = warpgroup_index() == 1;
  const auto copy_next = [&](int i) {  // each warpgroup copies one kind
    if (i >= first)
      copy_tile<Tiles, D, key_tile, warpgroup_size>(second ? values(i) : keys(i), second ? v : k, at.stride,
                                                    i * key_tile, T);
    copy_async_commit();
  };
  const float to_log2 = scale * log2_e;
  float sums[1][D / 8][4] = {}, scores[1][columns][4], top[2] = {-infinity, -infinity}, sum[2] = {}, rescale[2];
  unsigned weights[1][depth][4];
  const auto softmax = [&](int i) {
    hide_later(scores[0], mine - i * key_tile);
    if (starts) hide_documents(scores[0], starts, mine, i * key_tile);
    softmax_step(scores[0], top, sum, rescale, to_log2);
    if constexpr (dropped) {  // kept elements are scaled at the end, with the row
      const HeadMask head_mask(mask, s, b, h);
#pragma unroll
      for (int part = 0; part < columns; part += 8)
        drop<8>(scores[0], kept_bits(head_mask, mine, i * key_tile + part * 8), part);
    }
  };
  const auto hand_over = [&] { sync_turn(); };
  const auto arrive = [&] {
    copy_async_wait<0>();
    publish_shared();
    hand_over();
  };
  const auto take_weights = [&] {  // the sums and their weights are complete
    Tiles::template wait<0>(sums);
    rescale_rows(sums[0], rescale);
    pack_weights<E>(weights[0], scores[0]);
  };

  copy_tile<Tiles, D, query_tile, threads>(queries, q, at.stride, own * query_tile, T);
  copy_tile<Tiles, D, key_tile, threads>(keys(last), k, at.stride, last * key_tile, T);
  copy_tile<Tiles, D, key_tile, threads>(values(last), v, at.stride, last * key_tile, T);
  copy_async_commit();
  arrive();
  if (second) hand_over();
  Tiles::begin(scores);
  Tiles::template multiply_rows<query_tile, key_tile>(scores, queries, keys(last));
  Tiles::commit();
  copy_next(last - 1);
  Tiles::template wait<0>(scores);
  hand_over();
  softmax(last);
  for (int i = last - 1; i >= first; i--) {
    take_weights();  // placed here, since ptxas would otherwise wait before the softmax
    arrive();
    Tiles::begin(scores, sums, weights);
    Tiles::template multiply_rows<query_tile, key_tile>(scores, queries, keys(i));
    Tiles::commit();
    Tiles::template multiply_weights<key_tile>(sums, weights, values(i + 1));
    Tiles::commit();
    copy_next(i - 1);  // while the products run
    Tiles::template wait<1>(scores);
    hand_over();
    softmax(i);
  }
  take_weights();  // all copies arrived a turn ago
  Tiles::begin(sums, weights);
  Tiles::template multiply_weights<key_tile>(sums, weights, values(first));
  Tiles::commit();
  Tiles::template wait<0>(sums);
  if (!second) hand_over();
  finish_rows<Tiles, D, query_tile>(out, lse, at, mine, T, sums[0], top, sum, scale, mask.scale, queries, row);
}
}  // namespace

void hopper_forward(Queue queue, const AttentionForward& op) {
  const HeadOrder order = order_of(op.dims, query_tile, heads_in_l2(op.dims.T, op.dims.D));
  with_constants(op.qkv.dtype(), op.dims, op.dropout, [&](auto tag, auto D, auto dropped) {
    using E = decltype(tag);
    launch(
        queue,
        {op.name, blocks_for(order.blocks(), 1), threads, shared_bytes<WarpgroupTiles<E, D>, key_tile_of(D, dropped)>},
        forward_kernel<E, D, dropped>, op.out.data<E>(), op.lse.data<float>(), op.qkv.data<E>(), pointer_to(op.starts),
        order, heads_of(op.dims), mask_of(op.dropout), scale_of(op.dims));
  });
}

}  // namespace megalith::cuda::attention
