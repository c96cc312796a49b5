// The backward pass as two kernels of one shape, so that every sum has one owner and one order. In the first a block
// owns 128 keys, visits the queries that see them and writes dk and dv; in the second it owns 128 queries, visits the
// keys that they see and writes dq. Each recomputes the scores. The other side comes in tiles of 64 rows, or fewer
// where memory is short, the next one being copied while one is used; a warp owns 16 rows, whose scores and gradients
// stay in its registers. Hopper uses attention_backward_hopper.cu.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_warp_tiles.h"

namespace megalith::cuda {

namespace {
using namespace attention;
constexpr int warps = 8, threads = warps * warp_size;

// Computes delta of (b, t, h), one to a warp, and zeroes `zeroed` flags.
template <class E>
__global__ void __launch_bounds__(threads) delta_kernel(float* delta, int32_t* flags, int64_t zeroed, const E* dout,
                                                        const E* out, int64_t B, int64_t T, int64_t H, int64_t D) {
  for (int64_t f = int64_t{blockIdx.x} * threads + threadIdx.x; f < zeroed; f += int64_t{gridDim.x} * threads)
    flags[f] = 0;
  const int64_t i = int64_t{blockIdx.x} * warps + warp_index();
  if (i >= B * T * H) return;
  float dot = 0;
  for (int64_t c = lane_index(); c < D; c += warp_size)
    dot = fmaf(to_float(out[i * D + c]), to_float(dout[i * D + c]), dot);
  dot = warp_sum(dot);
  if (lane_index() != 0) return;
  const int64_t n = i / H, head = n / T * H + i % H, t = n % T;
  delta[head * T + t] = dot;
}

constexpr int own_tile = threads / 2;
constexpr int64_t statistics_bytes(int other_tile) { return other_tile * 2 * static_cast<int64_t>(sizeof(float)); }

template <class Tiles>
constexpr int64_t backward_bytes(int other_tile) {
  return 2 * Tiles::bytes(own_tile) + 4 * Tiles::bytes(other_tile) + 2 * statistics_bytes(other_tile) +
         2 * kept_bytes(threads);
}

// What a score needs of its query: lse in powers of 2, and delta. Queries beyond T get probability 0.
struct Statistics {
  float lse, delta;
};
__device__ inline Statistics statistics_of(const float* lse, const float* delta, int query, int T) {
  if (query >= T) return {infinity, 0};
  return {lse[query] * log2_e, delta[query]};
}

template <class E, int D, int other_tile, bool of_keys, bool dropped>
__global__ void __launch_bounds__(threads, 1)
    backward_kernel(E* dqkv, const float* delta, const E* dout_, const float* lse, const E* qkv, const int32_t* starts_,
                    Heads s, Mask mask, float scale) {
  using Tiles = WarpTiles<E, D>;
  constexpr int columns = other_tile / 8, depth = other_tile / 16;
  // A block that owns keys visits the queries of all heads that share them, one head after the other.
  const int64_t group = of_keys ? s.H / s.K : 1;
  const int64_t head = int64_t{blockIdx.y} * group;
  const HeadOffsets at(s, blockIdx.z, head);
  const DocumentStarts starts(starts_, s, blockIdx.z);
  const int T = static_cast<int>(s.T);
  const int64_t C = at.out_stride;
  const E *q = qkv + at.qkv, *k = qkv + at.keys, *v = qkv + at.values, *dout = dout_ + at.out;
  lse += at.statistics;
  delta += at.statistics;
  // Scores are own times other; score gradients are own_gradient times other_gradient.
  const E *own = of_keys ? k : q, *own_gradient = of_keys ? v : dout;
  const E *other = of_keys ? q : k, *other_gradient = of_keys ? dout : v;
  const int64_t own_gradient_stride = of_keys ? at.stride : C, other_gradient_stride = of_keys ? C : at.stride;

  // The longest tiles go first.
  const int first = static_cast<int>(of_keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * own_tile;
  const int row = warp_index() * 16, mine = first + row;
  constexpr int64_t own_bytes = Tiles::bytes(own_tile), other_bytes = Tiles::bytes(other_tile);
  E *a = shared_memory<E>(), *a_gradient = shared_memory<E>(own_bytes);
  const auto b = [](int i) { return shared_memory<E>(2 * own_bytes + i % 2 * other_bytes); };
  const auto b_gradient = [](int i) { return shared_memory<E>(2 * own_bytes + (2 + i % 2) * other_bytes); };
  const auto statistics = [](int i) {
    return shared_memory<float>(2 * own_bytes + 4 * other_bytes + i % 2 * statistics_bytes(other_tile));
  };
  const auto kept_of_queries = [](int i) {
    return shared_memory<uint16_t>(2 * own_bytes + 4 * other_bytes + 2 * statistics_bytes(other_tile) +
                                   i % 2 * kept_bytes(threads));
  };
  const auto head_mask = [&](int64_t g) { return HeadMask(mask, s, blockIdx.z, head + g); };
  // Turn n brings tile i of head g of the group.
  const auto copy_other = [&](int n, int64_t g, int i) {
    const int64_t shift = g * D;
    copy_tile<Tiles, D, other_tile, threads>(b(n), other + shift, at.stride, i * other_tile, T);
    copy_tile<Tiles, D, other_tile, threads>(b_gradient(n), other_gradient + shift, other_gradient_stride,
                                             i * other_tile, T);
    copy_async_commit();
    if (of_keys && threadIdx.x < other_tile) {
      const Statistics of =
          statistics_of(lse + g * s.T, delta + g * s.T, i * other_tile + static_cast<int>(threadIdx.x), T);
      store(statistics(n) + 2 * threadIdx.x, Vector<float, 2>{of.lse, of.delta});
    }
    if constexpr (of_keys && dropped)
      draw_kept<columns>(kept_of_queries(n), head_mask(g), i * other_tile, first + warp_index() / 4 * 64);
  };
  const int begin = (of_keys ? first : starts.of(first)) / other_tile;
  const int last_query = first + own_tile - 1 < T ? first + own_tile - 1 : T - 1;
  int end = (of_keys ? T - 1 : last_query) / other_tile + 1;
  if (of_keys) end = starts.end_of(first + own_tile - 1, other_tile, begin + 1, end);
  copy_tile<Tiles, D, own_tile, threads>(a, own, at.stride, first, T);
  copy_tile<Tiles, D, own_tile, threads>(a_gradient, own_gradient, own_gradient_stride, first, T);
  copy_other(0, 0, begin);

  const float to_log2 = scale * log2_e;
  Statistics of_row[2] = {};
  if constexpr (!of_keys)
    for (int half = 0; half < 2; half++) of_row[half] = statistics_of(lse, delta, mine + fragment_row(2 * half), T);
  [[maybe_unused]] KeptOfKeys<1> kept_of_keys;
  float sums[1][D / 8][4] = {}, dv[1][of_keys ? D / 8 : 1][4] = {};
  int next = begin;
  int64_t next_head = 0;
  for (int n = 0; next_head < group; n++) {
    const int theirs = next * other_tile;
    [[maybe_unused]] const int64_t g = next_head;
    if (++next == end) next = begin, next_head++;
    copy_async_wait<0>();
    sync_threads();  // this tile has arrived, and all threads are done with the previous one
    if (next_head < group) copy_other(n + 1, next_head, next);
    if (of_keys ? theirs + other_tile - 1 < mine : theirs > mine + 15) continue;
    if (of_keys ? starts.of(theirs) > mine + 15 : starts.of(mine) > theirs + other_tile - 1) continue;
    unsigned kept = ~0u;
    if constexpr (dropped && of_keys) kept = kept_of<columns, 4>(kept_of_queries(n));
    if constexpr (dropped && !of_keys) {
      kept_of_keys.draw(head_mask(0), mine, theirs);  // drawn while few registers are in use
      kept = kept_of_keys.from(0, theirs);
    }
    float scores[1][columns][4], dp[1][columns][4];
    Tiles::template multiply_rows<own_tile, other_tile>(scores, a, b(n));
    Tiles::template multiply_rows<own_tile, other_tile>(dp, a_gradient, b_gradient(n));
    const auto of = [&](int j, int e) {
      if constexpr (!of_keys) return of_row[e / 2];
      const Vector<float, 2> two = load<2>(statistics(n) + 2 * (j * 8 + fragment_column(e)));
      return Statistics{two[0], two[1]};
    };
    const auto factor = [&](int j, int e) { return dropped && !(kept >> (4 * j + e) & 1) ? 0 : mask.scale; };
    const int offset = mine - theirs;
    unsigned weights[1][depth][4], gradients[1][depth][4];
    if constexpr (of_keys) {
      hide_earlier(scores[0], offset);
      if (starts) hide_from_documents(scores[0], starts, mine, theirs);
    } else {
      hide_later(scores[0], offset);
      if (starts) hide_documents(scores[0], starts, mine, theirs);
    }
#pragma unroll
    for (int j = 0; j < columns; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) scores[0][j][e] = fast_exp2(fmaf(scores[0][j][e], to_log2, -of(j, e).lse));
#pragma unroll
    for (int j = 0; j < columns; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float weight[2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          const int e = 2 * half + m;
          weight[m] = scores[0][j][e] * factor(j, e);
          dp[0][j][e] = scores[0][j][e] * fmaf(dp[0][j][e], factor(j, e), -of(j, e).delta);
        }
        if constexpr (of_keys) weights[0][j / 2][j % 2 * 2 + half] = pack<E>(weight[0], weight[1]);
      }
    if constexpr (of_keys) Tiles::template multiply_weights<other_tile>(dv, weights, b_gradient(n));
    pack_weights<E>(gradients[0], dp[0]);
    Tiles::template multiply_weights<other_tile>(sums, gradients, b(n));
  }
  sync_threads();  // no thread multiplies with the own rows any more
  const float scaled[2] = {scale, scale}, one[2] = {1, 1};
  write_rows<Tiles, D, own_tile>(dqkv + (of_keys ? at.keys : at.qkv), at.stride, mine, T, sums[0], scaled, a, row);
  if constexpr (of_keys)
    write_rows<Tiles, D, own_tile>(dqkv + at.values, at.stride, mine, T, dv[0], one, a_gradient, row);
}

// Host: launches both kernels.
void launch_backward(Queue queue, const AttentionBackward& op) {
  with_constants(op.qkv.dtype(), op.dims, op.dropout, [&](auto tag, auto D, auto dropped) {
    using E = decltype(tag);
    using Tiles = WarpTiles<E, D>;
    const auto bytes = [](int other_tile) { return backward_bytes<Tiles>(other_tile); };
    with_rows<1, 16>(queue, bytes, [&](auto other_tile) {
      const auto run = [&](auto kernel, int64_t heads) {
        launch(queue, {op.name, grid_of(op.dims, own_tile, heads), threads, bytes(other_tile)}, kernel,
               op.dqkv.data<E>(), op.delta.data<float>(), op.dout.data<E>(), op.lse.data<float>(), op.qkv.data<E>(),
               pointer_to(op.starts), heads_of(op.dims), mask_of(op.dropout), scale_of(op.dims));
      };
      run(backward_kernel<E, D, other_tile, true, dropped>, op.dims.kv());
      run(backward_kernel<E, D, other_tile, false, dropped>, op.dims.H);
    });
  });
}
}  // namespace

void run(Queue queue, const AttentionBackward& op) {
  const bool tiles = fits_tiles(op.dims, {op.dqkv, op.dout, op.qkv}), hopper = tiles && queue.chip.generation == 9;
  const BackwardGrid grid = hopper ? grid_of_backward(op.dims) : BackwardGrid{};
  with_compute_type(op.qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {op.name, blocks_for(op.dims.B * op.dims.T * op.dims.H, warps), threads}, delta_kernel<E>,
           op.delta.data<float>(), hopper ? grid.flags_in(op.scratch.data<float>()) : nullptr, grid.flags,
           op.dout.data<E>(), op.out.data<E>(), op.dims.B, op.dims.T, op.dims.H, op.dims.D);
  });
  if (!tiles) return plain_backward(queue, op);
  if (hopper) return hopper_backward(queue, op);
  launch_backward(queue, op);
}

}  // namespace megalith::cuda
