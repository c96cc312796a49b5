// Attention for every head size, type and alignment, in f32 without tensor cores. A block owns 32 rows of a head and
// visits the other side in tiles of 32; products of 32 x 32 x D pass through shared memory 32 columns at a time, and
// the sums of the block's rows stay there. A score and its gradient have the same bits whichever side owns:
// multiplications commute, and sums go by column.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"

namespace megalith::cuda::attention {

namespace {
constexpr int tile = 32, threads = 256, warps = threads / warp_size, cells = tile * (tile + 1);
// The fixed part of a block's shared memory; its sums follow.
struct ForwardShared {
  float scratch[2 * cells], weights[cells], top[tile], total[tile], rescale[tile];
};
struct BackwardShared {
  float scratch[2 * cells], weights[cells], gradients[cells], excess[tile];
};
using Product = float[2][2];  // thread i has rows i / 16 and + 16, columns i % 16 and + 16

__device__ int own_row(int r) { return static_cast<int>(threadIdx.x) / 16 + 16 * r; }
__device__ int own_column(int c) { return static_cast<int>(threadIdx.x) % 16 + 16 * c; }
__device__ int cell(int row, int column) { return row * (tile + 1) + column; }

// Returns how many rows or columns of a tile that begins at `begin` exist. A constant for full tiles unrolls loops.
__device__ int num_within(int64_t begin, int64_t end) {
  return static_cast<int>(end - begin < tile ? end - begin : tile);
}
template <class F>
__device__ void for_each(int n, F&& f) {
  if (n == tile) {
    for (int i = 0; i < tile; i++) f(i);
  } else {
#pragma unroll 1
    for (int i = 0; i < n; i++) f(i);
  }
}

// Loads columns [column, column + 32) of rows [first, first + 32) of a head; elements outside are 0.
template <class E>
__device__ void fetch(float* to, const E* head, int64_t stride, int64_t first, int64_t T, int64_t column, int64_t D) {
  for (int row = warp_index(); row < tile; row += warps) {
    const int64_t t = first + row, c = column + lane_index();
    to[cell(row, lane_index())] = t < T && c < D ? to_float(head[t * stride + c]) : 0;
  }
}

// Rows of one head: the block's own, and those of the current tile.
template <class E>
struct Rows {
  const E* head;
  int64_t stride;
};

// Computes p = own rows times the other rows, transposed.
template <class E>
__device__ void multiply_rows(Product& p, float* scratch, Rows<E> own, int64_t first, Rows<E> other,
                              int64_t other_first, int64_t T, int64_t D) {
  float *a = scratch, *b = scratch + cells;
  for (auto& row : p) row[0] = row[1] = 0;
  for (int64_t column = 0; column < D; column += tile) {
    sync_threads();
    fetch(a, own.head, own.stride, first, T, column, D);
    fetch(b, other.head, other.stride, other_first, T, column, D);
    sync_threads();
    for_each(num_within(column, D), [&](int i) {
      for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) p[r][c] = fmaf(a[cell(own_row(r), i)], b[cell(own_column(c), i)], p[r][c]);
    });
  }
}

// Updates sums (rows, D) = factor of the row * sums + weights times the other rows. A thread owns its elements.
template <class E>
__device__ void add_weighted(float* sums, const float* weights, int rows, const float* factor, float* scratch,
                             Rows<E> other, int64_t other_first, int64_t T, int64_t D) {
  for (int64_t column = 0; column < D; column += tile) {
    sync_threads();
    fetch(scratch, other.head, other.stride, other_first, T, column, D);
    sync_threads();
    for (int r = 0; r < 2; r++)
      for (int c = 0; c < 2; c++) {
        if (own_row(r) >= rows || column + own_column(c) >= D) continue;
        float& sum = sums[own_row(r) * D + column + own_column(c)];
        float part = 0;
        for_each(num_within(other_first, T),
                 [&](int i) { part = fmaf(weights[cell(own_row(r), i)], scratch[cell(i, own_column(c))], part); });
        sum = factor ? fmaf(sum, factor[own_row(r)], part) : sum + part;
      }
  }
}

__device__ void clear(float* sums, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += threads) sums[i] = 0;
}
template <class E, class F>
__device__ void write_sums(E* head, int64_t stride, const float* sums, int64_t first, int64_t T, int64_t D, F&& f) {
  sync_threads();
  for (int row = warp_index(); row < tile; row += warps)
    for (int64_t c = lane_index(); c < D; c += warp_size)
      if (first + row < T) head[(first + row) * stride + c] = to<E>(f(row, c, sums[row * D + c]));
}

template <class E, bool dropped>
__global__ void __launch_bounds__(threads)
    forward_kernel(E* out, float* lse, const E* qkv, const int32_t* starts_, Heads s, Mask mask, float scale) {
  auto& [scratch, weights, top, total, rescale] = *shared_memory<ForwardShared>();
  const HeadOffsets at(s, blockIdx.z, blockIdx.y);
  const HeadMask head_mask(mask, s, blockIdx.z, blockIdx.y);
  const DocumentStarts starts(starts_, s, blockIdx.z);
  const int64_t first = (gridDim.x - 1 - int64_t{blockIdx.x}) * tile;  // the longest tiles go first
  const Rows<E> q{qkv + at.qkv, at.stride}, k{qkv + at.keys, at.stride}, v{qkv + at.values, at.stride};
  float* sums = shared_memory<float>(sizeof(ForwardShared));
  const int rows = num_within(first, s.T);
  clear(sums, tile * s.D);
  if (threadIdx.x < tile) {
    top[threadIdx.x] = -infinity;
    total[threadIdx.x] = 0;
  }
  for (int64_t key = starts.of(first) / tile * tile; key <= first; key += tile) {
    Product scores;
    multiply_rows(scores, scratch, q, first, k, key, s.T, s.D);
    for (int r = 0; r < 2; r++)
      for (int c = 0; c < 2; c++) {
        const int64_t mine = first + own_row(r), theirs = key + own_column(c);
        float& score = weights[cell(own_row(r), own_column(c))];
        score = theirs <= mine ? scores[r][c] * scale : -infinity;
        if (theirs < starts.of(mine)) score = hidden;
      }
    sync_threads();
    for (int row = warp_index(); row < rows; row += warps) {
      float& w = weights[cell(row, lane_index())];
      const float before = top[row], largest = fmaxf(before, warp_max(w));
      float p = expf(w - largest);
      const float sum = warp_sum(p);
      if constexpr (dropped) p = head_mask.keeps(first + row, key + lane_index()) ? p * mask.scale : 0;
      w = p;
      sync_warp();  // all lanes have read top[row]
      if (lane_index() == 0) {
        rescale[row] = expf(before - largest);
        total[row] = total[row] * rescale[row] + sum;
        top[row] = largest;
      }
    }
    add_weighted(sums, weights, rows, rescale, scratch, v, key, s.T, s.D);
  }
  write_sums(out + at.out, at.out_stride, sums, first, s.T, s.D,
             [&](int row, int64_t, float sum) { return sum / total[row]; });
  if (threadIdx.x < tile && first + threadIdx.x < s.T)
    lse[at.statistics + first + threadIdx.x] = top[threadIdx.x] + logf(total[threadIdx.x]);
}

// of_keys: the block owns keys and writes dk and dv, sums over the heads that share them; else it owns the queries of
// these heads, one head after the other, and writes dq, and for f32 subtracts the residue of each row's sum from the
// diagonal of dS (attention.h), also in the dk that is already written.
template <class E, bool of_keys, bool dropped>
__global__ void __launch_bounds__(threads)
    backward_kernel(E* dqkv, const float* delta, const E* dout_, const float* lse, const E* qkv, const int32_t* starts_,
                    Heads s, Mask mask, float scale) {
  constexpr bool balanced = !of_keys && std::is_same_v<E, float>;
  auto& [scratch, weights, gradients, excess] = *shared_memory<BackwardShared>();
  const DocumentStarts starts(starts_, s, blockIdx.z);
  const int64_t T = s.T, D = s.D, group = s.H / s.K;
  const int64_t first = (of_keys ? int64_t{blockIdx.x} : gridDim.x - 1 - int64_t{blockIdx.x}) * tile;
  float *sums = shared_memory<float>(sizeof(BackwardShared)), *dv = sums + tile * D;
  const int rows = num_within(first, T);
  const int64_t last = of_keys ? T - 1 : first;
  for (int64_t h = blockIdx.y * group; h < (blockIdx.y + 1) * group; h++) {
    const HeadOffsets at(s, blockIdx.z, h);
    const HeadMask head_mask(mask, s, blockIdx.z, h);
    const Rows<E> q{qkv + at.qkv, at.stride}, k{qkv + at.keys, at.stride}, v{qkv + at.values, at.stride};
    const Rows<E> dout{dout_ + at.out, at.out_stride};
    const Rows<E> own = of_keys ? k : q, own_gradient = of_keys ? v : dout;
    const Rows<E> other = of_keys ? q : k, other_gradient = of_keys ? dout : v;
    const bool is_first = h == blockIdx.y * group;
    if (!of_keys || is_first) {
      if (!is_first) sync_threads();  // the sums of the previous head are written
      clear(sums, (of_keys ? 2 : 1) * tile * D);
      if (threadIdx.x < tile) excess[threadIdx.x] = 0;
    }
    for (int64_t begin = of_keys ? first : starts.of(first) / tile * tile; begin <= last; begin += tile) {
      if (of_keys && starts.of(begin) >= first + tile) break;  // later queries belong to other documents too
      Product scores, dp;
      multiply_rows(scores, scratch, own, first, other, begin, T, D);
      multiply_rows(dp, scratch, own_gradient, first, other_gradient, begin, T, D);
      for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
          const int64_t mine = first + own_row(r), theirs = begin + own_column(c);
          const int64_t query = of_keys ? theirs : mine, key = of_keys ? mine : theirs;
          float p = 0, ds = 0;
          if (key <= query && query < T && key >= starts.of(query)) {
            float factor = 1;
            if constexpr (dropped) factor = head_mask.keeps(query, key) ? mask.scale : 0;
            p = expf(scores[r][c] * scale - lse[at.statistics + query]);
            ds = p * fmaf(dp[r][c], factor, -delta[at.statistics + query]);
            p *= factor;
          }
          gradients[cell(own_row(r), own_column(c))] = ds;
          if constexpr (of_keys) weights[cell(own_row(r), own_column(c))] = p;
        }
      sync_threads();
      if constexpr (balanced)
        for (int row = warp_index(); row < rows; row += warps) {
          const float sum = warp_sum(gradients[cell(row, lane_index())]);
          if (lane_index() == 0) excess[row] += sum;
        }
      add_weighted(sums, gradients, rows, nullptr, scratch, other, begin, T, D);
      if constexpr (of_keys) add_weighted(dv, weights, rows, nullptr, scratch, other_gradient, begin, T, D);
    }
    if constexpr (balanced) {
      E *to = dqkv + at.qkv, *to_keys = dqkv + at.keys;
      write_sums(to, at.stride, sums, first, T, D, [&](int row, int64_t c, float sum) {
        const int64_t t = (first + row) * at.stride + c;
        to_keys[t] -= excess[row] * q.head[t] * scale;
        return (sum - excess[row] * k.head[t]) * scale;
      });
    } else if constexpr (!of_keys) {
      write_sums(dqkv + at.qkv, at.stride, sums, first, T, D, [&](int, int64_t, float sum) { return sum * scale; });
    }
  }
  if constexpr (of_keys) {
    const HeadOffsets at(s, blockIdx.z, blockIdx.y * group);
    write_sums(dqkv + at.keys, at.stride, sums, first, T, D, [&](int, int64_t, float sum) { return sum * scale; });
    write_sums(dqkv + at.values, at.stride, dv, first, T, D, [&](int, int64_t, float sum) { return sum; });
  }
}

// Returns the shared memory of a block with the sums of `tensors` tensors.
int64_t shared_bytes(Queue queue, const char* name, int64_t fixed, int64_t tensors, int64_t D) {
  const int64_t of_a_column = tensors * tile * static_cast<int64_t>(sizeof(float)), all = queue.chip.shared_memory;
  CHECK(fixed + D * of_a_column <= all,
        "{}: head size {}; a block of this GPU has {} bytes of shared memory, enough for heads of {}: use more heads",
        name, D, all, (all - fixed) / of_a_column);
  return fixed + D * of_a_column;
}
}  // namespace

void plain_forward(Queue queue, const AttentionForward& op) {
  const int64_t shared = shared_bytes(queue, op.name, sizeof(ForwardShared), 1, op.dims.D);
  with_compute_type(op.qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    with_mask(op.dropout, [&](auto dropped) {
      launch(queue, {op.name, grid_of(op.dims, tile), threads, shared}, forward_kernel<E, dropped>, op.out.data<E>(),
             op.lse.data<float>(), op.qkv.data<E>(), pointer_to(op.starts), heads_of(op.dims), mask_of(op.dropout),
             scale_of(op.dims));
    });
  });
}

void plain_backward(Queue queue, const AttentionBackward& op) {
  const auto shared = [&](int64_t sums) {
    return shared_bytes(queue, op.name, sizeof(BackwardShared), sums, op.dims.D);
  };
  const int64_t of_keys = shared(2), of_queries = shared(1);
  with_compute_type(op.qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    with_mask(op.dropout, [&](auto dropped) {
      launch(queue, {op.name, grid_of(op.dims, tile, op.dims.kv()), threads, of_keys},
             backward_kernel<E, true, dropped>, op.dqkv.data<E>(), op.delta.data<float>(), op.dout.data<E>(),
             op.lse.data<float>(), op.qkv.data<E>(), pointer_to(op.starts), heads_of(op.dims), mask_of(op.dropout),
             scale_of(op.dims));
      launch(queue, {op.name, grid_of(op.dims, tile, op.dims.kv()), threads, of_queries},
             backward_kernel<E, false, dropped>, op.dqkv.data<E>(), op.delta.data<float>(), op.dout.data<E>(),
             op.lse.data<float>(), op.qkv.data<E>(), pointer_to(op.starts), heads_of(op.dims), mask_of(op.dropout),
             scale_of(op.dims));
    });
  });
}

}  // namespace megalith::cuda::attention
