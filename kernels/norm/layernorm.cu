// A group of 1, 2, 4 or 8 warps holds a row in registers, so that each element is read once: for the mean, then for the
// squared distances from it. Rows that are too long or not aligned for vectors take kernels that read them again for
// each pass. A residual is computed on the row while it is in registers.
#include <cmath>

#include "kernels/elementwise/dropout_cuda.h"
#include "kernels/loops/column_sums_cuda.h"
#include "kernels/loops/largest_cuda.h"
#include "kernels/norm/layernorm.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, warps = threads / warp_size;

// Returns the sum of v over the `group` warps of a row, the same bits in each of their threads. All threads of the
// block must call it equally often; `scratch` is in shared memory, and different in consecutive calls.
template <int group>
__device__ float group_sum(float v, float (&scratch)[warps]) {
  v = warp_sum(v);
  if constexpr (group > 1) {
    if (lane_index() == 0) scratch[warp_index()] = v;
    sync_threads();
    const int first = warp_index() / group * group;
    v = scratch[first];
    for (int i = 1; i < group; i++) v += scratch[first + i];
  }
  return v;
}

// R is the residual's type; T, of the same size or smaller, is that of all other tensors. Vectors have as many elements
// as 16 bytes hold of R. Vector p of this thread's part of a row begins at column first + p * step.
template <class R, int group>
struct Part {
  static constexpr int n = 16 / sizeof(R), step = group * warp_size * n;
  __device__ static int64_t first() { return (warp_index() % group * warp_size + lane_index()) * n; }
};

enum class Residual { none, plain, dropout };

template <class T, class R>
struct BranchEnd {  // y = x + dropout(h + b)
  R* y;
  const T *h, *b;
  DropoutMask mask;
};

template <class T, class R, int group, int parts, Residual residual>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* ln, float* stat, const R* x, BranchEnd<T, R> branch, const T* w, const T* b, NormRule rule,
                   int64_t N, int64_t C, LargestOfBlocks to_largest) {
  using Mine = Part<R, group>;
  constexpr int n = Mine::n;
  __shared__ float scratch[2][warps];
  const int64_t row = int64_t{blockIdx.x} * (warps / group) + warp_index() / group, first = Mine::first();
  const bool has_row = row < N;  // threads without a row still reach the barriers
  [[maybe_unused]] const DropoutMask mask = branch.mask.now();
  Vector<R, n> from[parts];
  Vector<T, n> added[parts];
#pragma unroll
  for (int p = 0; p < parts; p++) {
    const int64_t c = first + p * Mine::step;
    if (has_row && c < C) {
      from[p] = load_once<n>(x + row * C + c);
      if constexpr (residual != Residual::none) added[p] = load_once<n>(branch.h + row * C + c);
    }
  }
  float v[parts][n];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < parts; p++) {
    const int64_t c = first + p * Mine::step;
    [[maybe_unused]] float factors[n];
    if constexpr (residual == Residual::dropout) draw_together(factors, mask, row, c);
    if (!has_row || c >= C) continue;
    if constexpr (residual != Residual::none) {
      const Vector<T, n> bias = load_or_zeros<n>(branch.b, c);
      for (int i = 0; i < n; i++) {
        float more = to_float(added[p][i]) + to_float(bias[i]);
        if constexpr (residual == Residual::dropout) more *= factors[i];
        from[p][i] = to<R>(to_float(from[p][i]) + more);
      }
      store(branch.y + row * C + c, from[p]);
    }
    for (int i = 0; i < n; i++) sum += v[p][i] = to_float(from[p][i]);
  }
  const float mean = rule.centered ? group_sum<group>(sum, scratch[0]) / static_cast<float>(C) : 0;
  float square = 0;
#pragma unroll
  for (int p = 0; p < parts; p++)
    if (has_row && first + p * Mine::step < C)
      for (int i = 0; i < n; i++) square += (v[p][i] - mean) * (v[p][i] - mean);
  const float rstd = 1.0f / sqrtf(group_sum<group>(square, scratch[1]) / static_cast<float>(C) + rule.epsilon);
  if (has_row && first == 0) store(stat + 2 * row, Vector<float, 2>{mean, rstd});
  unsigned largest = 0;
#pragma unroll
  for (int p = 0; p < parts; p++) {
    const int64_t c = first + p * Mine::step;
    if (has_row && c < C) {
      const Vector<T, n> scale = load<n>(w + c), shift = load_or_zeros<n>(b, c);
      Vector<T, n> result;
      for (int i = 0; i < n; i++) result[i] = to<T>((v[p][i] - mean) * rstd * to_float(scale[i]) + to_float(shift[i]));
      store(ln + row * C + c, result);
      if (row < to_largest.rows) take_larger(largest, result);
    }
  }
  store_largest<threads>(to_largest, largest);
}

template <class T, class R, Residual residual>
__global__ void __launch_bounds__(threads)
    forward_any_kernel(T* ln, float* stat, const R* x, BranchEnd<T, R> branch, const T* w, const T* b, NormRule rule,
                       int64_t C, LargestOfBlocks to_largest) {
  __shared__ float scratch[2][warps];
  const int64_t row = blockIdx.x, begin = row * C;
  const R* y = residual == Residual::none ? x : branch.y;  // a thread reads only its own writes
  [[maybe_unused]] const DropoutMask mask = branch.mask.now();
  float sum = 0;
  for (int64_t c = threadIdx.x; c < C; c += threads) {
    if constexpr (residual != Residual::none) {
      float more = to_float(branch.h[begin + c]) + (branch.b ? to_float(branch.b[c]) : 0);
      if constexpr (residual == Residual::dropout) more *= draw_one(mask, row, c);
      branch.y[begin + c] = to<R>(to_float(x[begin + c]) + more);
    }
    sum += to_float(y[begin + c]);
  }
  const float mean = rule.centered ? group_sum<warps>(sum, scratch[0]) / static_cast<float>(C) : 0;
  float square = 0;
  for (int64_t c = threadIdx.x; c < C; c += threads)
    square += (to_float(y[begin + c]) - mean) * (to_float(y[begin + c]) - mean);
  const float rstd = 1.0f / sqrtf(group_sum<warps>(square, scratch[1]) / static_cast<float>(C) + rule.epsilon);
  unsigned largest = 0;
  for (int64_t c = threadIdx.x; c < C; c += threads) {
    const T result = to<T>((to_float(y[begin + c]) - mean) * rstd * to_float(w[c]) + (b ? to_float(b[c]) : 0));
    ln[begin + c] = result;
    if (row < to_largest.rows) take_larger(largest, Vector<T, 1>{result});
  }
  store_largest<threads>(to_largest, largest);
  if (threadIdx.x == 0) {
    stat[2 * row] = mean;
    stat[2 * row + 1] = rstd;
  }
}

// The number of column sums that a block writes: dw, db, and the bias gradient of the residual.
template <Residual residual>
constexpr int sums_of = residual == Residual::none ? 2 : 3;

template <class T>
struct BranchGradient {  // dh = dropout(dx); null when it is dx
  T* dh;
  DropoutMask mask;
};

// Blocks take rows in turn and keep the sums of their columns. The rows of one block wait for each other, so a block
// has as few as possible.
constexpr int fewest_threads(int group) { return std::max(group, 4) * warp_size; }
template <class T, class R, int group, int parts, Residual residual>
__global__ void __launch_bounds__(fewest_threads(group))
    backward_kernel(R* dx, BranchGradient<T> branch, float* partial, const T* dy, const R* x, const float* stat,
                    const T* w, bool centered, int64_t N, int64_t C) {
  using Mine = Part<R, group>;
  constexpr int n = Mine::n, groups = fewest_threads(group) / warp_size / group, num_sums = sums_of<residual>;
  __shared__ float scratch[2][warps];
  const int mine = warp_index() / group;
  const int64_t first = Mine::first();
  [[maybe_unused]] const DropoutMask mask = branch.mask.now();
  float sums[num_sums][parts][n] = {};
  int turn = 0;  // without a mean each row has one sum, so rows use the two scratches in turn
  for (int64_t begin = int64_t{blockIdx.x} * groups; begin < N; begin += int64_t{gridDim.x} * groups) {
    const int64_t row = begin + mine;
    const bool has_row = row < N;
    const Vector<float, 2> s = has_row ? load<2>(stat + 2 * row) : Vector<float, 2>{0, 0};
    const float mean = s[0], rstd = s[1];
    Vector<T, n> gradient[parts];
    Vector<R, n> input[parts], before[parts];
    float sum = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      if (has_row && c < C) {
        gradient[p] = load_once<n>(dy + row * C + c);
        input[p] = load_once<n>(x + row * C + c);
        before[p] = load<n>(dx + row * C + c);
      }
    }
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      if (has_row && c < C) {
        const Vector<T, n> scale = load<n>(w + c);
        for (int i = 0; i < n; i++) {
          const float d = to_float(gradient[p][i]), xhat = (to_float(input[p][i]) - mean) * rstd;
          const float g = d * to_float(scale[i]);
          sum += g;
          dot += g * xhat;
          sums[0][p][i] += d * xhat;
          sums[1][p][i] += d;
        }
      }
    }
    sum = centered ? group_sum<group>(sum, scratch[0]) / static_cast<float>(C) : 0;
    dot = group_sum<group>(dot, scratch[centered ? 1 : turn]) / static_cast<float>(C);
    turn = 1 - turn;
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      [[maybe_unused]] float factors[n];
      if constexpr (residual == Residual::dropout) draw_together(factors, mask, row, c);
      if (!has_row || c >= C) continue;
      const Vector<T, n> scale = load<n>(w + c);
      Vector<R, n> result;
      Vector<T, n> branch_result;
      for (int i = 0; i < n; i++) {
        const float xhat = (to_float(input[p][i]) - mean) * rstd;
        float v = to_float(before[p][i]) + rstd * (to_float(gradient[p][i]) * to_float(scale[i]) - sum - xhat * dot);
        result[i] = to<R>(v);
        if constexpr (residual != Residual::none) {
          if constexpr (residual == Residual::dropout) v *= factors[i];
          branch_result[i] = to<T>(v);
          sums[2][p][i] += v;
        }
      }
      store(dx + row * C + c, result);
      if constexpr (residual != Residual::none)
        if (branch.dh) store(branch.dh + row * C + c, branch_result);
    }
  }
  // Adds the sums of the block's groups in order.
  float* before = shared_memory<float>();
  for (int next = 0; next < groups; next++) {
    if (groups > 1) sync_threads();
    if (mine != next) continue;
    float* to = next == groups - 1 ? partial + blockIdx.x * num_sums * C : before;
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      if (c >= C) continue;
#pragma unroll
      for (int k = 0; k < num_sums; k++)
#pragma unroll
        for (int i = 0; i < n; i += 4) {  // 16 bytes at a time: lanes are n floats apart
          Vector<float, 4> sum{};
          if (next) sum = load<4>(before + k * C + c + i);
          for (int j = 0; j < 4; j++) sum[j] = sums[k][p][i + j] + sum[j];
          store(to + k * C + c + i, sum);
        }
    }
  }
}

template <class T, class R, Residual residual>
__global__ void __launch_bounds__(threads)
    backward_any_kernel(R* dx, BranchGradient<T> branch, float* partial, const T* dy, const R* x, const float* stat,
                        const T* w, bool centered, int64_t N, int64_t C) {
  __shared__ float scratch[2][warps];
  constexpr int num_sums = sums_of<residual>;
  [[maybe_unused]] const DropoutMask mask = branch.mask.now();
  float* sums = partial + blockIdx.x * num_sums * C;
  for (int64_t c = threadIdx.x; c < C; c += threads)
    for (int k = 0; k < num_sums; k++) sums[k * C + c] = 0;
  int turn = 0;  // one sum a row, as above
  for (int64_t row = blockIdx.x; row < N; row += gridDim.x) {
    const float mean = stat[2 * row], rstd = stat[2 * row + 1];
    float sum = 0, dot = 0;
    for (int64_t c = threadIdx.x; c < C; c += threads) {
      const float d = to_float(dy[row * C + c]), xhat = (to_float(x[row * C + c]) - mean) * rstd;
      const float g = d * to_float(w[c]);
      sum += g;
      dot += g * xhat;
      sums[c] += d * xhat;
      sums[C + c] += d;
    }
    sum = centered ? group_sum<warps>(sum, scratch[0]) / static_cast<float>(C) : 0;
    dot = group_sum<warps>(dot, scratch[centered ? 1 : turn]) / static_cast<float>(C);
    turn = 1 - turn;
    for (int64_t c = threadIdx.x; c < C; c += threads) {
      const int64_t i = row * C + c;
      const float xhat = (to_float(x[i]) - mean) * rstd;
      float v = to_float(dx[i]) + rstd * (to_float(dy[i]) * to_float(w[c]) - sum - xhat * dot);
      dx[i] = to<R>(v);
      if constexpr (residual != Residual::none) {
        if constexpr (residual == Residual::dropout) v *= draw_one(mask, row, c);
        if (branch.dh) branch.dh[i] = to<T>(v);
        sums[2 * C + c] += v;
      }
    }
  }
}

// Calls f(group, parts) with constants for the smallest group of warps whose threads hold at most `most` elements of a
// row of C. Returns false if no group does. Parts grow by 8 elements, so f32 has no more kernels than 16-bit types.
template <class R, int most, int group = 1, int parts = 8 / Part<R, group>::n, class F>
bool with_group(int64_t C, F&& f) {
  constexpr int more = 8 / Part<R, group>::n, most_parts = most / Part<R, group>::n;
  if constexpr (parts <= most_parts) {
    if (C > parts * Part<R, group>::step) return with_group<R, most, group, parts + more>(C, f);
    f(std::integral_constant<int, group>{}, std::integral_constant<int, parts>{});
    return true;
  } else if constexpr (group < warps) {
    return with_group<R, most, 2 * group, most_parts / 2 + more>(C, f);
  } else {
    return false;
  }
}

// Calls f(residual) with a constant.
template <class F>
void with_residual(const Dropout& d, F&& f) {
  if (d.active()) return f(std::integral_constant<Residual, Residual::dropout>{});
  f(std::integral_constant<Residual, Residual::plain>{});
}

template <Residual residual, class T, class R>
void forward(Queue queue, const char* name, const LayerNormForward& op, BranchEnd<T, R> branch, bool vectors) {
  const int64_t N = op.x.rows(), C = op.x.cols();
  T* ln = op.y.data<T>();
  float* stat = op.stat.data<float>();
  const R* x = op.x.data<R>();
  const T *w = op.w.data<T>(), *b = op.b.data_or_null<T>();
  unsigned blocks = 0;
  const auto run = [&](auto group, auto parts) {
    blocks = blocks_for(N, warps / group);
    launch(queue, {name, blocks, threads}, forward_kernel<T, R, group, parts, residual>, ln, stat, x, branch, w, b,
           op.rule, N, C, LargestOfBlocks(queue, op.largest, blocks));
  };
  const bool fast = vectors && in_vectors({op.y, op.x, op.w, op.b}) && aligned(stat, 8) && with_group<R, 32>(C, run);
  if (!fast) {
    blocks = blocks_for(N, 1);
    launch(queue, {name, blocks, threads}, forward_any_kernel<T, R, residual>, ln, stat, x, branch, w, b, op.rule, C,
           LargestOfBlocks(queue, op.largest, blocks));
  }
  raise_largest(queue, name, op.largest.amax, blocks);
}

// dh_b is null without a residual or its bias.
template <Residual residual, class R, class T>
void backward(Queue queue, const char* name, const LayerNormBackward& op, BranchGradient<T> branch, float* dh_b) {
  constexpr int num_sums = sums_of<residual>;
  const int64_t N = op.x.rows(), C = op.x.cols();
  R* dx = op.dx.data<R>();
  const R* x = op.x.data<R>();
  const T *dy = op.dy.data<T>(), *w = op.w.data<T>();
  const float* stat = op.stat.data<float>();
  float* partial = static_cast<float*>(queue.workspace);
  unsigned blocks = 0;
  const auto run = [&](auto group, auto parts) {
    constexpr int groups = fewest_threads(group) / warp_size / group;
    blocks = partial_blocks(ceil_div(N, groups), num_sums * C, threads / fewest_threads(group));
    const int64_t shared = groups > 1 ? num_sums * C * static_cast<int64_t>(sizeof(float)) : 0;
    launch(queue, {name, blocks, fewest_threads(group), shared}, backward_kernel<T, R, group, parts, residual>, dx,
           branch, partial, dy, x, stat, w, op.rule.centered, N, C);
  };
  const bool fast = in_vectors({op.dx, op.dy, op.x, op.w}) && aligned(branch.dh) && aligned(stat, 8) &&
                    (with_group<R, 16>(C, run) || with_group<R, 32, warps, 24 / Part<R, warps>::n>(C, run));
  if (!fast) {
    blocks = partial_blocks(N, num_sums * C);
    launch(queue, {name, blocks, threads}, backward_any_kernel<T, R, residual>, dx, branch, partial, dy, x, stat, w,
           op.rule.centered, N, C);
  }
  finish_column_sums(queue, name, {op.dw.data_or_null<float>(), op.db.data_or_null<float>(), dh_b}, num_sums, C,
                     blocks);
}
}  // namespace

void run(Queue queue, const LayerNormForward& op) {
  with_residual_types(op.y.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    forward<Residual::none>(queue, op.name, op, BranchEnd<T, R>{}, true);
  });
}

void run(Queue queue, const LayerNormBackward& op) {
  with_residual_types(op.dy.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    backward<Residual::none, R>(queue, op.name, op, BranchGradient<T>{}, nullptr);
  });
}

void run(Queue queue, const ResidualLayerNormForward& op) {
  with_residual_types(op.h.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    // The norm's x is the sum y: a row is normed after the branch is added.
    const LayerNormForward norm{
        .y = op.ln, .stat = op.stat, .x = op.x, .w = op.w, .b = op.b, .rule = op.rule, .largest = op.largest};
    const BranchEnd<T, R> branch{op.y.data<R>(), op.h.data<T>(), op.h_b.data_or_null<T>(), mask_of(op.dropout)};
    with_residual(op.dropout, [&](auto residual) {
      forward<residual>(queue, op.name, norm, branch, in_vectors({op.y, op.h, op.h_b}));
    });
  });
}

void run(Queue queue, const ResidualLayerNormBackward& op) {
  with_residual_types(op.dln.dtype(), op.y.dtype(), [&]<class T, class R>(T, R) {
    const BranchGradient<T> branch{op.dh.raw() != op.dx.raw() ? op.dh.data<T>() : nullptr, mask_of(op.dropout)};
    with_residual(op.dropout, [&](auto residual) {
      backward<residual, R>(queue, op.name, norm_of(op), branch, op.dh_b.data_or_null<float>());
    });
  });
}

}  // namespace megalith::cuda
