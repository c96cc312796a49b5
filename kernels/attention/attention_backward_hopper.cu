// Attention's backward pass on Hopper, where every score is computed once. A block owns 128 keys of one key-value head
// and visits the queries of each of its heads that see them in tiles of 128, from the diagonal on. A warpgroup owns 64
// of the keys, takes 64 queries at a time and keeps dk and dv in registers; at head size 64, its keys and values too.
// The score gradients of a tile meet in shared memory, where each warpgroup computes the part of dq that they give to
// 64 of its queries.
//
// dq is summed over blocks in f32 in scratch memory, and rounded by a kernel of its own. The block on the diagonal
// begins. Each other block adds its part in memory after the block with the next keys. So all sums have one order, and
// every run gives the same bits. With the heads of a group apart (BackwardGrid), dk and dv are summed in the
// same way, in the order of the heads, and the block of the last one rounds. A block publishes in a flag how many parts
// it has added, and looks at the flag that it follows only when it has a part to add. A block takes a ticket when it
// starts, which says which keys it owns; so the block it waits for is already running, whatever order a GPU starts
// blocks in. (Methods: FlashAttention-2, arXiv:2307.08691, algorithm 2; FlashAttention-3, arXiv:2407.08608.)
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_warpgroup_tiles.h"

namespace megalith::cuda::attention {

namespace {
constexpr int threads = 2 * warpgroup_size, tile = backward_tile, half_tile = tile / 2;
constexpr int columns = half_tile / 8, depth = half_tile / 16, draws = tile / 8;

// The offsets in a block's shared memory. The other side's tiles are double-buffered: while dq's last product of one
// tile runs, the tile after the next is copied.
template <class Tiles>
struct SharedOffsets {
  static constexpr int64_t rows = Tiles::bytes(tile), keys = 0, values = rows, queries = 2 * rows, douts = 4 * rows,
                           gradients = 6 * rows, lse = gradients + tile * tile * 2,
                           delta = lse + tile * int64_t{sizeof(float)}, kept = delta + tile * int64_t{sizeof(float)},
                           end = kept + kept_bytes(threads);
};

// The scratch memory. `dq` has the sums of each tile of queries of each head; `dkv`, with heads apart, those of dk and
// then of dv for each tile of keys of each key-value head; both as the threads of a block hold them (part_of). `flags`
// has one for each tile of queries of each head, then one for each tile of keys of each key-value head, and then the
// ticket counter.
struct Scratch {
  float *dq, *dkv;
  int32_t* flags;
};

// A thread's first element among the sums of a tile; its next four are `sum_step` elements further on.
constexpr int sum_step = threads * 4;
template <int D>
__device__ float* part_of(float* sums, int64_t n) {
  return sums + n * tile * D + threadIdx.x * 4;
}
// Writes or adds a thread's part, or reads it and adds it to the registers.
template <int n>
__device__ void put(float* part, const float (&sums)[n][4], bool first) {
#pragma unroll
  for (int j = 0; j < n; j++) {
    const Vector<float, 4> four{sums[j][0], sums[j][1], sums[j][2], sums[j][3]};
    if (first) {
      store(part + j * sum_step, four);
    } else {
      add_to_memory(part + j * sum_step, four);
    }
  }
}
template <int n>
__device__ void take(float (&sums)[n][4], const float* part) {
#pragma unroll
  for (int j = 0; j < n; j++) {
    const Vector<float, 4> four = load<4>(part + j * sum_step);
#pragma unroll
    for (int e = 0; e < 4; e++) sums[j][e] += four[e];
  }
}

// A block works for `group` query heads that share a key-value head: all of them, or one.
template <class E, int D, bool dropped>
__global__ void __launch_bounds__(threads, 1)
    backward_kernel(E* dqkv, Scratch scratch, HeadOrder order, int group, const float* delta, const E* dout_,
                    const float* lse, const E* qkv, const int32_t* starts_, Heads s, Mask mask, float scale) {
  using Tiles = WarpgroupTiles<E, D>;
  using Shared = SharedOffsets<Tiles>;
  auto* ticket = shared_memory<int32_t>(Shared::gradients);  // the gradients are written after a later barrier
  const int H = static_cast<int>(s.H), K = static_cast<int>(s.K);
  int32_t* const shared_flags = scratch.flags + order.blocks() * group;
  if (threadIdx.x == 0) *ticket = take_ticket(shared_flags + order.blocks() * group / (H / K));
  sync_threads();
  const auto [owner, own] = order.of(*ticket);
  const int first_head = owner * group, b = first_head / H, h = first_head % H;
  const HeadOffsets at(s, b, h);
  const DocumentStarts starts(starts_, s, b);
  const int T = static_cast<int>(s.T), tiles = order.tiles;
  const int64_t C = at.out_stride;
  const E *q = qkv + at.qkv, *k = qkv + at.keys, *v = qkv + at.values, *dout = dout_ + at.out;
  lse += at.statistics;
  delta += at.statistics;
  int32_t* const turns = scratch.flags + int64_t{first_head} * tiles + own;

  const int first = own * tile, row = warp_index() * 16, mine = first + row;
  const int ours = first + warpgroup_index() * half_tile;  // the warpgroup's first key
  const int end =
      starts.end_of(first + tile - 1, tile, own + 1, tiles);  // the first tile that does not see the own keys

  E *keys = shared_memory<E>(Shared::keys), *values = shared_memory<E>(Shared::values);
  E* gradients = shared_memory<E>(Shared::gradients);  // (own keys, queries)
  const auto queries = [](int n) { return shared_memory<E>(Shared::queries + n % 2 * Shared::rows); };
  const auto douts = [](int n) { return shared_memory<E>(Shared::douts + n % 2 * Shared::rows); };
  // Visit n is of tile own + n % visible of the group's head n / visible.
  const int visible = end - own, visits = group * visible;
  const auto copy_queries = [&](int n) {
    const int g = n / visible, i = own + n % visible;
    copy_tile<Tiles, D, tile, threads>(queries(n), q + g * D, at.stride, i * tile, T);
    copy_tile<Tiles, D, tile, threads>(douts(n), dout + g * D, C, i * tile, T);
  };
  // Dropout's scale is applied at the end, when the sums leave the registers.
  const float unscaled = dropped ? mask.unscaled : 1, gradient_scale = dropped ? scale * mask.scale : scale;
  // Data of which shared memory holds one tile only: fetched a tile ahead, one query by each of the first threads.
  constexpr bool fetched_early = !dropped || D == 64;  // with a mask, larger heads have no registers for it
  float next_lse = 0, next_delta = 0;
  const auto fetch = [&](int n) {
    if (const int query = (own + n % visible) * tile + static_cast<int>(threadIdx.x); threadIdx.x < tile) {
      const int64_t at_query = int64_t{n / visible} * T + query;
      next_lse = query < T ? lse[at_query] : infinity;  // P is 0 for queries beyond T
      next_delta = query < T ? delta[at_query] : 0;
    }
  };
  const auto prepare = [&](int n) {
    if (threadIdx.x < tile) {
      shared_memory<float>(Shared::lse)[threadIdx.x] = next_lse * log2_e;
      shared_memory<float>(Shared::delta)[threadIdx.x] = next_delta * unscaled;
    }
    if constexpr (dropped)
      draw_kept<draws>(shared_memory<uint16_t>(Shared::kept), HeadMask(mask, s, b, h + n / visible),
                       (own + n % visible) * tile, ours);
  };

  copy_tile<Tiles, D, tile, threads>(keys, k, at.stride, first, T);
  copy_tile<Tiles, D, tile, threads>(values, v, at.stride, first, T);
  copy_queries(0);
  copy_async_commit();
  if (visits > 1) copy_queries(1);
  copy_async_commit();
  fetch(0);
  prepare(0);
  constexpr bool own_in_registers = D == 64;  // larger heads do not fit next to dk and dv
  [[maybe_unused]] typename Tiles::Rows own_keys, own_values;
  if constexpr (own_in_registers) {
    copy_async_wait<1>();
    sync_threads();
    Tiles::template load_rows<tile>(own_keys, keys);
    Tiles::template load_rows<tile>(own_values, values);
  }
  // The offset of this thread's gradients; eight columns further is another unit of the same row (swizzled()).
  const int written = swizzled(mine - first + fragment_row(), fragment_column(), tile);
  const float to_log2 = scale * log2_e;
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  int32_t turn = 0;  // the last turn of the preceding block that this thread has seen
  for (int n = 0; n < visits; n++) {
    const int g = n / visible, i = own + n % visible;
    copy_async_wait<1>();
    publish_shared();
    sync_threads();  // this tile has arrived, and dq of the previous one is finished
    if (fetched_early && n + 1 < visits) fetch(n + 1);
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
      const int theirs = i * tile + half * half_tile;
      unsigned weights[1][depth][4] = {};
      const bool seen = theirs < T && theirs + half_tile - 1 >= ours && starts.of(theirs) <= ours + half_tile - 1;
      if (seen) {
        const E* other = queries(n) + Tiles::template at<tile>(half * half_tile, 0);
        const E* other_gradient = douts(n) + Tiles::template at<tile>(half * half_tile, 0);
        float scores[1][columns][4], dp[1][columns][4];
        Tiles::begin(scores, dp);
        if constexpr (own_in_registers) {
          Tiles::template multiply_rows<tile>(scores, own_keys, other);
        } else {
          Tiles::template multiply_rows<tile, tile>(scores, keys, other);
        }
        Tiles::commit();
        if constexpr (own_in_registers) {
          Tiles::template multiply_rows<tile>(dp, own_values, other_gradient);
        } else {
          Tiles::template multiply_rows<tile, tile>(dp, values, other_gradient);
        }
        Tiles::commit();
        const auto load_kept = [&] {
          if constexpr (dropped) return kept_of<draws, 2>(shared_memory<uint16_t>(Shared::kept), 2 * half);
          return ~0u;
        };
        const auto if_kept = [&](unsigned kept, int j, int e, float value) {
          return !dropped || kept >> (4 * j + e) & 1 ? value : 0.0f;
        };
        const auto of_queries = [&](int64_t statistic, int j) {
          return load<2>(shared_memory<float>(statistic) + half * half_tile + j * 8 + fragment_column());
        };
        Tiles::template wait<1>(scores);
        hide_earlier(scores[0], mine - theirs);
        if (starts) hide_from_documents(scores[0], starts, mine, theirs);
#pragma unroll
        for (int j = 0; j < columns; j++) {
          const Vector<float, 2> two = of_queries(Shared::lse, j);
#pragma unroll
          for (int e = 0; e < 4; e++) scores[0][j][e] = fast_exp2(fmaf(scores[0][j][e], to_log2, -two[e % 2]));
        }
        unsigned kept = load_kept();
#pragma unroll
        for (int j = 0; j < columns; j++)
#pragma unroll
          for (int pair = 0; pair < 2; pair++)
            weights[0][j / 2][j % 2 * 2 + pair] = pack<E>(if_kept(kept, j, 2 * pair, scores[0][j][2 * pair]),
                                                          if_kept(kept, j, 2 * pair + 1, scores[0][j][2 * pair + 1]));
        Tiles::begin(dv, weights);
        Tiles::template multiply_weights<tile>(dv, weights, other_gradient);
        Tiles::commit();
        Tiles::template wait<1>(dp);
        kept = load_kept();  // loaded again rather than held in registers
#pragma unroll
        for (int j = 0; j < columns; j++) {
          const Vector<float, 2> two = of_queries(Shared::delta, j);
#pragma unroll
          for (int e = 0; e < 4; e++) dp[0][j][e] = scores[0][j][e] * (if_kept(kept, j, e, dp[0][j][e]) - two[e % 2]);
        }
        Tiles::template wait<0>(dv);
        pack_weights<E>(weights[0], dp[0]);
        Tiles::begin(dk, weights);
        Tiles::template multiply_weights<tile>(dk, weights, other);
        Tiles::commit();
      }
#pragma unroll
      for (int j = 0; j < columns; j++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++)
          store(reinterpret_cast<unsigned*>(gradients + ((written + half * tile * panel_columns) ^ j * 8) +
                                            pair * 8 * panel_columns),
                Vector<unsigned, 1>{weights[0][j / 2][j % 2 * 2 + pair]});
      Tiles::template wait<0>(dk);
    }
    // The flags serve the sums after the next barrier, not the products before it. They were set before the previous
    // tile's barrier, and half a tile's work has passed since.
    int32_t* const turn_of = turns + g * tiles;
    if (threadIdx.x == 0 && n > 0) release(i > own ? turn_of : turn_of - tiles, i > own ? i - own : visible);
    if (threadIdx.x == warpgroup_size) {
      if (i == own) turn = 0;
      if (turn < i - own) turn = await(turn_of + 1, i - own);
    }
    float dq[1][D / 8][4] = {};
    publish_shared();
    sync_threads();  // all gradients are written, and no thread needs this tile's queries any more
    Tiles::begin(dq);
    Tiles::template multiply_columns<tile, tile>(dq, gradients, keys);
    Tiles::commit();
    if (n + 2 < visits) copy_queries(n + 2);  // while the product runs
    copy_async_commit();
    if (!fetched_early && n + 1 < visits) fetch(n + 1);
    if (n + 1 < visits) prepare(n + 1);
    Tiles::template wait<0>(dq);
    put(part_of<D>(scratch.dq, int64_t{first_head + g} * tiles + i), dq[0], i == own);
  }
  sync_threads();  // no thread multiplies with the keys any more
  if (threadIdx.x == 0) release(turns + (group - 1) * tiles, visible);
  if (const int members = H / K; group < members) {
    const int member = h % members;
    const int64_t n = int64_t{b * K + h / members} * tiles + own;
    float *const dk_part = part_of<D>(scratch.dkv, 2 * n), *const dv_part = part_of<D>(scratch.dkv, 2 * n + 1);
    if (threadIdx.x == 0 && member > 0) await(shared_flags + n, member);
    sync_threads();
    if (member + 1 < members) {
      put(dk_part, dk[0], member == 0);
      put(dv_part, dv[0], member == 0);
      sync_threads();
      if (threadIdx.x == 0) release(shared_flags + n, member + 1);
      return;
    }
    take(dk[0], dk_part);
    take(dv[0], dv_part);
  }
  const float kept_scale = dropped ? mask.scale : 1;
  const float scaled[2] = {gradient_scale, gradient_scale}, of_values[2] = {kept_scale, kept_scale};
  write_rows<Tiles, D, tile>(dqkv + at.keys, at.stride, mine, T, dk[0], scaled, keys, row);
  write_rows<Tiles, D, tile>(dqkv + at.values, at.stride, mine, T, dv[0], of_values, values, row);
}

// Rounds the sums of dq, one tile of one head to a block.
template <class E, int D>
__global__ void __launch_bounds__(threads) round_kernel(E* dqkv, float* sums, int tiles, Heads s, float scale) {
  using Tiles = WarpgroupTiles<E, D>;
  const int H = static_cast<int>(s.H), T = static_cast<int>(s.T), n = static_cast<int>(blockIdx.x);
  const int head = n / tiles, row = warp_index() * 16;
  const HeadOffsets at(s, head / H, head % H);
  float dq[D / 8][4] = {};
  take(dq, part_of<D>(sums, n));
  const float scaled[2] = {scale, scale};
  write_rows<Tiles, D, tile>(dqkv + at.qkv, at.stride, n % tiles * tile + row, T, dq, scaled, shared_memory<E>(), row);
}
}  // namespace

void hopper_backward(Queue queue, const AttentionBackward& op) {
  const AttentionDims& dims = op.dims;
  const BackwardGrid grid = grid_of_backward(dims);
  float* const sums = op.scratch.data<float>();
  const Scratch scratch{sums, sums + grid.dq, grid.flags_in(sums)};
  with_constants(op.qkv.dtype(), dims, op.dropout, [&](auto tag, auto D, auto dropped) {
    using E = decltype(tag);
    using Tiles = WarpgroupTiles<E, D>;
    launch(queue, {op.name, blocks_for(grid.order.blocks(), 1), threads, SharedOffsets<Tiles>::end},
           backward_kernel<E, D, dropped>, op.dqkv.data<E>(), scratch, grid.order,
           static_cast<int>(grid.apart ? 1 : dims.group()), op.delta.data<float>(), op.dout.data<E>(),
           op.lse.data<float>(), op.qkv.data<E>(), pointer_to(op.starts), heads_of(dims), mask_of(op.dropout),
           scale_of(dims));
    launch(queue, {op.name, blocks_for(dims.B * dims.H * grid.order.tiles, 1), threads, Tiles::bytes(tile)},
           round_kernel<E, D>, op.dqkv.data<E>(), scratch.dq, grid.order.tiles, heads_of(dims),
           scale_of(dims) * mask_of(op.dropout).scale);
  });
}

}  // namespace megalith::cuda::attention
