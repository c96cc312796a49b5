// As attention_forward.cu, with warpgroup products: a block owns 128 queries of one head, a warpgroup 64 of them, and
// visits the keys in tiles of 128, from the diagonal down. The warpgroups take turns at the tensor cores: in its turn a
// warpgroup enqueues its next scores and the previous product of weights and values, and passes the turn on at once. It
// computes its softmax while the products of the other run. (Method: FlashAttention-3, arXiv:2407.08608, section 3.1.)
//
// A turn begins at a named barrier at which the warpgroup waits and the other one arrives when it has enqueued its own
// products. After its products the first warpgroup begins to copy the next tile's keys, the second the next tile's
// values. A warpgroup waits for its copies, and for its products, before its next turn; so whoever has the turn knows
// that all copies begun two turns ago are there, and that the buffers read two turns ago are free. Keys and values have
// three buffers each: one that is copied to and two that the products of both read.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_warpgroup_tiles.h"

namespace megalith::cuda::attention {

namespace {
constexpr int threads = 2 * warpgroup_size, query_tile = forward_tile;

template <class Tiles, int key_tile>
constexpr int64_t shared_bytes = Tiles::bytes(query_tile) + 6 * Tiles::bytes(key_tile);

template <class E, int D, bool dropped>
__global__ void __launch_bounds__(threads, forward_sharing(D))
    forward_kernel(E* out, float* lse, const E* qkv, const int32_t* starts_, HeadOrder order, Heads s, Mask mask,
                   float scale) {
  using Tiles = WarpgroupTiles<E, D>;
  constexpr int key_tile = forward_keys(D), columns = key_tile / 8, depth = key_tile / 16;
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
  const auto keys = [](int i) { return shared_memory<E>(query_bytes + i % 3 * key_bytes); };
  const auto values = [](int i) { return shared_memory<E>(query_bytes + (3 + i % 3) * key_bytes); };
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
  const int first_turn = 1, second_turn = 2;  // barriers
  const auto publish_copies = [&] {
    copy_async_wait<0>();
    publish_shared();
  };
  const auto await_turn = [&] { barrier_sync(second ? second_turn : first_turn, threads); };
  const auto pass_turn = [&] { barrier_arrive(second ? first_turn : second_turn, threads); };
  const auto take_weights = [&] {  // the sums and their weights are complete
    Tiles::template wait<0>(sums);
    rescale_rows(sums[0], rescale);
    pack_weights<E>(weights[0], scores[0]);
  };

  copy_tile<Tiles, D, query_tile, threads>(queries, q, at.stride, own * query_tile, T);
  copy_tile<Tiles, D, key_tile, threads>(keys(last), k, at.stride, last * key_tile, T);
  copy_tile<Tiles, D, key_tile, threads>(values(last), v, at.stride, last * key_tile, T);
  copy_async_commit();
  publish_copies();
  if (second) pass_turn();
  await_turn();
  Tiles::begin(scores);
  Tiles::template multiply_rows<query_tile, key_tile>(scores, queries, keys(last));
  Tiles::commit();
  pass_turn();
  copy_next(last - 1);
  Tiles::template wait<0>(scores);
  softmax(last);
  for (int i = last - 1; i >= first; i--) {
    take_weights();  // placed here, since ptxas would otherwise wait before the softmax
    publish_copies();
    await_turn();
    Tiles::begin(scores, sums, weights);
    Tiles::template multiply_rows<query_tile, key_tile>(scores, queries, keys(i));
    Tiles::commit();
    Tiles::template multiply_weights<key_tile>(sums, weights, values(i + 1));
    Tiles::commit();
    pass_turn();
    copy_next(i - 1);
    Tiles::template wait<1>(scores);
    softmax(i);
  }
  take_weights();
  await_turn();  // all copies were published a turn ago
  Tiles::begin(sums, weights);
  Tiles::template multiply_weights<key_tile>(sums, weights, values(first));
  Tiles::commit();
  if (!second) pass_turn();
  Tiles::template wait<0>(sums);
  finish_rows<Tiles, D, query_tile>(out, lse, at, mine, T, sums[0], top, sum, scale, mask.scale, queries, row);
}
}  // namespace

void hopper_forward(Queue queue, const AttentionForward& op) {
  const HeadOrder order = order_of(op.dims, query_tile, heads_in_l2(op.dims.T, op.dims.D));
  with_constants(op.qkv.dtype(), op.dims, op.dropout, [&](auto tag, auto D, auto dropped) {
    using E = decltype(tag);
    launch(queue,
           {op.name, blocks_for(order.blocks(), 1), threads, shared_bytes<WarpgroupTiles<E, D>, forward_keys(D)>},
           forward_kernel<E, D, dropped>, op.out.data<E>(), op.lse.data<float>(), op.qkv.data<E>(),
           pointer_to(op.starts), order, heads_of(op.dims), mask_of(op.dropout), scale_of(op.dims));
  });
}

}  // namespace megalith::cuda::attention
