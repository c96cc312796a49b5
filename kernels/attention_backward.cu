// Two kernels of one shape, so that every sum has one owner and one order: a block owns 128 keys, goes over the queries
// that see them and writes dk and dv; then a block owns 128 queries, goes over the keys that they see and writes dq.
// Each computes the scores anew. The other side comes in tiles of 64, the next on its way while one is used; a warp
// owns 16 rows, whose scores and gradients never leave its registers.
#include "kernels/attention_cuda.h"

namespace megalith::cuda {

namespace {
using namespace attention;
constexpr int warps = 8, threads = warps * warp_size, own_tile = 16 * warps;
constexpr int other_tile = 64, columns = other_tile / 8, depth = other_tile / 16;
constexpr int64_t statistics_bytes = other_tile * 2 * static_cast<int64_t>(sizeof(float));

template <int D>
constexpr int64_t shared_bytes = 2 * tile_bytes<D>(own_tile) + 4 * tile_bytes<D>(other_tile) + 2 * statistics_bytes;

// delta of (b, t, h), one to a warp.
template <class E>
__global__ void __launch_bounds__(threads)
    delta_kernel(float* delta, const E* dout, const E* out, int64_t B, int64_t T, int64_t H, int64_t D) {
  const int64_t i = int64_t{blockIdx.x} * warps + warp_index();
  if (i >= B * T * H) return;
  float dot = 0;
  for (int64_t c = lane_index(); c < D; c += warp_size)
    dot = fmaf(to_float(out[i * D + c]), to_float(dout[i * D + c]), dot);
  dot = warp_sum(dot);
  const int64_t n = i / H, h = i % H;
  if (lane_index() == 0) delta[(n / T * H + h) * T + n % T] = dot;
}

// What a score needs of its query: lse in powers of 2, and delta. Queries that are not there have probability 0.
struct Statistics {
  float lse, delta;
};
__device__ Statistics statistics_of(const float* lse, const float* delta, int query, int T) {
  if (query >= T) return {infinity, 0};
  return {lse[query] * log2_e, delta[query]};
}

template <int D, bool of_keys, bool dropped>
__global__ void __launch_bounds__(threads, 1)
    backward_kernel(bfloat16* dqkv, const float* delta, const bfloat16* dout_, const float* lse, const bfloat16* qkv,
                    Heads s, Mask mask, float scale) {
  const Place at(s, blockIdx.z, blockIdx.y);
  const int T = static_cast<int>(s.T);
  const int64_t C = at.out_stride;
  const bfloat16 *q = qkv + at.qkv, *k = q + C, *v = k + C, *dout = dout_ + at.out;
  lse += at.statistics;
  delta += at.statistics;
  // Scores are own times other; their gradients own_gradient times other_gradient.
  const bfloat16 *own = of_keys ? k : q, *own_gradient = of_keys ? v : dout;
  const bfloat16 *other = of_keys ? q : k, *other_gradient = of_keys ? dout : v;
  const int64_t own_gradient_stride = of_keys ? at.stride : C, other_gradient_stride = of_keys ? C : at.stride;

  // The longest first.
  const int first = static_cast<int>(of_keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * own_tile;
  const int mine = first + warp_index() * 16;
  constexpr int64_t own_bytes = tile_bytes<D>(own_tile), other_bytes = tile_bytes<D>(other_tile);
  bfloat16 *a = shared_memory<bfloat16>(), *a_gradient = shared_memory<bfloat16>(own_bytes);
  const auto b = [](int i) { return shared_memory<bfloat16>(2 * own_bytes + i % 2 * other_bytes); };
  const auto b_gradient = [](int i) { return shared_memory<bfloat16>(2 * own_bytes + (2 + i % 2) * other_bytes); };
  const auto statistics = [](int i) {
    return shared_memory<float>(2 * own_bytes + 4 * other_bytes + i % 2 * statistics_bytes);
  };
  const auto copy_other = [&](int i) {
    copy_tile<D, other_tile, threads>(b(i), other, at.stride, i * other_tile, T);
    copy_tile<D, other_tile, threads>(b_gradient(i), other_gradient, other_gradient_stride, i * other_tile, T);
    copy_async_commit();
    if (of_keys && threadIdx.x < other_tile) {
      const Statistics of = statistics_of(lse, delta, i * other_tile + static_cast<int>(threadIdx.x), T);
      store(statistics(i) + 2 * threadIdx.x, Vector<float, 2>{of.lse, of.delta});
    }
  };
  const int begin = of_keys ? first / other_tile : 0;
  const int last_query = first + own_tile - 1 < T ? first + own_tile - 1 : T - 1;
  const int end = (of_keys ? T - 1 : last_query) / other_tile + 1;
  copy_tile<D, own_tile, threads>(a, own, at.stride, first, T);
  copy_tile<D, own_tile, threads>(a_gradient, own_gradient, own_gradient_stride, first, T);
  copy_other(begin);
  a += warp_index() * 16 * tile_stride<D>;
  a_gradient += warp_index() * 16 * tile_stride<D>;

  const float to_log2 = scale * log2_e;
  Statistics of_row[2] = {};
  if constexpr (!of_keys)
    for (int half = 0; half < 2; half++) of_row[half] = statistics_of(lse, delta, mine + fragment_row(2 * half), T);
  float sums[1][D / 8][4] = {}, dv[1][of_keys ? D / 8 : 1][4] = {};
  for (int i = begin; i < end; i++) {
    copy_async_wait<0>();
    sync_threads();  // this tile is there, and everyone is done with the one before
    if (i + 1 < end) copy_other(i + 1);
    const int theirs = i * other_tile;
    if (of_keys ? theirs + other_tile - 1 < mine : theirs > mine + 15) continue;
    unsigned kept = ~0u;  // drawn while little else is held in registers
    if constexpr (dropped) kept = kept_bits<of_keys>(HeadMask(mask, s, blockIdx.z, blockIdx.y), mine, theirs);
    float scores[1][columns][4] = {}, dp[1][columns][4] = {};
    multiply_rows<D>(scores, a, b(i));
    multiply_rows<D>(dp, a_gradient, b_gradient(i));
    const bool diagonal = of_keys ? theirs < mine + 15 : theirs + other_tile - 1 > mine;
    const int offset = mine - theirs;
    unsigned weights[1][depth][4], gradients[1][depth][4];
#pragma unroll
    for (int j = 0; j < columns; j++) {
      Statistics of_column[2] = {};
      if constexpr (of_keys) {
        const Vector<float, 4> two = load<4>(statistics(i) + 2 * (j * 8 + fragment_column()));
        of_column[0] = {two[0], two[1]};
        of_column[1] = {two[2], two[3]};
      }
      float p[4], ds[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Statistics of = of_keys ? of_column[e % 2] : of_row[e / 2];
        const int row = offset + fragment_row(e), column = j * 8 + fragment_column(e);
        const bool unseen = diagonal && (of_keys ? row > column : column > row);
        p[e] = unseen ? 0 : fast_exp2(fmaf(scores[0][j][e], to_log2, -of.lse));
        const float factor = dropped && !(kept >> (4 * j + e) & 1) ? 0 : mask.scale;
        ds[e] = p[e] * fmaf(dp[0][j][e], factor, -of.delta);
        p[e] *= factor;
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        weights[0][j / 2][j % 2 * 2 + half] = pack(p[2 * half], p[2 * half + 1]);
        gradients[0][j / 2][j % 2 * 2 + half] = pack(ds[2 * half], ds[2 * half + 1]);
      }
    }
    multiply_weights<D>(sums, gradients, b(i));
    if constexpr (of_keys) multiply_weights<D>(dv, weights, b_gradient(i));
  }
  bfloat16* to = dqkv + at.qkv;
  const float factor[2] = {scale, scale}, one[2] = {1, 1};
  write_rows<D>(of_keys ? to + C : to, at.stride, mine, T, sums[0], factor, a);
  if constexpr (of_keys) write_rows<D>(to + 2 * C, at.stride, mine, T, dv[0], one, a_gradient);
}
}  // namespace

void attention_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        const AttentionDims& dims, const Dropout& d) {
  const char* name = "attention_backward";
  with_compute_type(qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    launch(queue, {name, blocks_for(dims.B * dims.T * dims.H, warps), threads}, delta_kernel<E>, delta.data<float>(),
           dout.data<E>(), out.data<E>(), dims.B, dims.T, dims.H, dims.D);
  });
  const Heads heads{dims.T, dims.H, dims.D, dims.first_head};
  const float scale = 1.0f / std::sqrt(static_cast<float>(dims.D));
  const Mask mask = d.active() ? Mask(d) : Mask();
  const bool fast = qkv.dtype() == DType::bf16 && in_vectors({dqkv, dout, qkv}) && with_head_size(dims.D, [&](auto D) {
                      with_mask(d, [&](auto dropped) {
                        const auto run = [&](auto of_keys) {
                          launch(queue, {name, grid_of(dims, own_tile), threads, shared_bytes<D>},
                                 backward_kernel<D, of_keys, dropped>, dqkv.data<bfloat16>(), delta.data<float>(),
                                 dout.data<bfloat16>(), lse.data<float>(), qkv.data<bfloat16>(), heads, mask, scale);
                        };
                        run(std::true_type{});
                        run(std::false_type{});
                      });
                    });
  if (!fast) plain_backward(queue, dqkv, delta, dout, lse, qkv, dims, d);
}

}  // namespace megalith::cuda
