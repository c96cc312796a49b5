// A row belongs to a group of 1, 2, 4 or 8 warps that hold it in registers, so that each element is read once: the mean
// first, then the squared distances from it. Rows that are too long, or lie where vectors cannot reach, go through a
// kernel that reads them again for each pass.
#include <cmath>

#include "kernels/column_sums_cuda.h"
#include "kernels/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr float epsilon = 1e-5f;
constexpr int threads = 256, warps = threads / warp_size;

// v summed over the `group` warps of a row, in every thread of them, the same bits in each. All threads of the block
// come, as often as each other; `room` is in shared memory, and another one for the next call.
template <int group>
__device__ float group_sum(float v, float (&room)[warps]) {
  v = warp_sum(v);
  if constexpr (group > 1) {
    if (lane_index() == 0) room[warp_index()] = v;
    sync_threads();
    const int first = warp_index() / group * group;
    v = room[first];
    for (int i = 1; i < group; i++) v += room[first + i];
  }
  return v;
}

// Vector p of this thread's part of a row begins at column first + p * step.
template <class T, int group>
struct Part {
  static constexpr int n = 16 / sizeof(T), step = group * warp_size * n;
  __device__ static int64_t first() { return (warp_index() % group * warp_size + lane_index()) * n; }
};

template <class T, int group, int parts>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* y, float* stat, const T* x, const T* w, const T* b, int64_t N, int64_t C) {
  using Mine = Part<T, group>;
  constexpr int n = Mine::n;
  __shared__ float room[2][warps];
  const int64_t row = int64_t{blockIdx.x} * (warps / group) + warp_index() / group, first = Mine::first();
  const bool has_row = row < N;  // threads without one still come to the barriers
  float v[parts][n];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < parts; p++) {
    const int64_t c = first + p * Mine::step;
    if (has_row && c < C) {
      const Vector<T, n> from = load_once<n>(x + row * C + c);
      for (int i = 0; i < n; i++) sum += v[p][i] = to_float(from[i]);
    }
  }
  const float mean = group_sum<group>(sum, room[0]) / static_cast<float>(C);
  float square = 0;
#pragma unroll
  for (int p = 0; p < parts; p++)
    if (has_row && first + p * Mine::step < C)
      for (int i = 0; i < n; i++) square += (v[p][i] - mean) * (v[p][i] - mean);
  const float rstd = 1.0f / sqrtf(group_sum<group>(square, room[1]) / static_cast<float>(C) + epsilon);
  if (!has_row) return;
  if (first == 0) store(stat + 2 * row, Vector<float, 2>{mean, rstd});
#pragma unroll
  for (int p = 0; p < parts; p++) {
    const int64_t c = first + p * Mine::step;
    if (c < C) {
      const Vector<T, n> scale = load<n>(w + c), shift = load<n>(b + c);
      Vector<T, n> result;
      for (int i = 0; i < n; i++) result[i] = to<T>((v[p][i] - mean) * rstd * to_float(scale[i]) + to_float(shift[i]));
      store(y + row * C + c, result);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    forward_any_kernel(T* y, float* stat, const T* x, const T* w, const T* b, int64_t C) {
  __shared__ float room[2][warps];
  x += blockIdx.x * C;
  y += blockIdx.x * C;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < C; c += threads) sum += to_float(x[c]);
  const float mean = group_sum<warps>(sum, room[0]) / static_cast<float>(C);
  float square = 0;
  for (int64_t c = threadIdx.x; c < C; c += threads) square += (to_float(x[c]) - mean) * (to_float(x[c]) - mean);
  const float rstd = 1.0f / sqrtf(group_sum<warps>(square, room[1]) / static_cast<float>(C) + epsilon);
  for (int64_t c = threadIdx.x; c < C; c += threads)
    y[c] = to<T>((to_float(x[c]) - mean) * rstd * to_float(w[c]) + to_float(b[c]));
  if (threadIdx.x == 0) {
    stat[2 * int64_t{blockIdx.x}] = mean;
    stat[2 * int64_t{blockIdx.x} + 1] = rstd;
  }
}

// Blocks take rows in turn and keep the sums of their columns: dw in the first C floats of their row of `partial`, db
// in the last.
template <class T, int group, int parts>
__global__ void __launch_bounds__(threads) backward_kernel(T* dx, float* partial, const T* dy, const T* x,
                                                           const float* stat, const T* w, int64_t N, int64_t C) {
  using Mine = Part<T, group>;
  constexpr int n = Mine::n, groups = warps / group;
  __shared__ float room[2][warps];
  const int mine = warp_index() / group;
  const int64_t first = Mine::first();
  float dw[parts][n] = {}, db[parts][n] = {};
  for (int64_t begin = int64_t{blockIdx.x} * groups; begin < N; begin += int64_t{gridDim.x} * groups) {
    const int64_t row = begin + mine;
    const bool has_row = row < N;
    const Vector<float, 2> s = has_row ? load<2>(stat + 2 * row) : Vector<float, 2>{0, 0};
    const float mean = s[0], rstd = s[1];
    Vector<T, n> gradient[parts], input[parts], before[parts];
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
          dw[p][i] += d * xhat;
          db[p][i] += d;
        }
      }
    }
    sum = group_sum<group>(sum, room[0]) / static_cast<float>(C);
    dot = group_sum<group>(dot, room[1]) / static_cast<float>(C);
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      if (has_row && c < C) {
        const Vector<T, n> scale = load<n>(w + c);
        Vector<T, n> result;
        for (int i = 0; i < n; i++) {
          const float xhat = (to_float(input[p][i]) - mean) * rstd;
          result[i] =
              to<T>(to_float(before[p][i]) + rstd * (to_float(gradient[p][i]) * to_float(scale[i]) - sum - xhat * dot));
        }
        store(dx + row * C + c, result);
      }
    }
  }
  // The groups of the block, in order.
  float* sums = shared_memory<float>();
  for (int turn = 0; turn < groups; turn++) {
    if (groups > 1) sync_threads();
    if (mine != turn) continue;
    float* to = turn == groups - 1 ? partial + blockIdx.x * 2 * C : sums;
#pragma unroll
    for (int p = 0; p < parts; p++) {
      const int64_t c = first + p * Mine::step;
      if (c >= C) continue;
      for (int i = 0; i < n; i++) {
        to[c + i] = dw[p][i] + (turn ? sums[c + i] : 0);
        to[C + c + i] = db[p][i] + (turn ? sums[C + c + i] : 0);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(threads) backward_any_kernel(T* dx, float* partial, const T* dy, const T* x,
                                                               const float* stat, const T* w, int64_t N, int64_t C) {
  __shared__ float room[2][warps];
  float *dw = partial + blockIdx.x * 2 * C, *db = dw + C;
  for (int64_t c = threadIdx.x; c < 2 * C; c += threads) dw[c] = 0;
  sync_threads();
  for (int64_t row = blockIdx.x; row < N; row += gridDim.x) {
    const float mean = stat[2 * row], rstd = stat[2 * row + 1];
    float sum = 0, dot = 0;
    for (int64_t c = threadIdx.x; c < C; c += threads) {
      const float d = to_float(dy[row * C + c]), xhat = (to_float(x[row * C + c]) - mean) * rstd;
      const float g = d * to_float(w[c]);
      sum += g;
      dot += g * xhat;
      dw[c] += d * xhat;
      db[c] += d;
    }
    sum = group_sum<warps>(sum, room[0]) / static_cast<float>(C);
    dot = group_sum<warps>(dot, room[1]) / static_cast<float>(C);
    for (int64_t c = threadIdx.x; c < C; c += threads) {
      const int64_t i = row * C + c;
      const float xhat = (to_float(x[i]) - mean) * rstd;
      dx[i] = to<T>(to_float(dx[i]) + rstd * (to_float(dy[i]) * to_float(w[c]) - sum - xhat * dot));
    }
  }
}

// f(group, parts), as constants, for the smallest group of warps of which no thread holds more than `most` elements of
// a row of C; false when there is none.
template <class T, int most, int group = 1, int parts = 1, class F>
bool with_group(int64_t C, F&& f) {
  constexpr int most_parts = most / Part<T, group>::n;
  if constexpr (parts <= most_parts) {
    if (C > parts * Part<T, group>::step) return with_group<T, most, group, parts + 1>(C, f);
    f(std::integral_constant<int, group>{}, std::integral_constant<int, parts>{});
    return true;
  } else if constexpr (group < warps) {
    return with_group<T, most, 2 * group, most_parts / 2 + 1>(C, f);
  } else {
    return false;
  }
}
}  // namespace

void layernorm_forward(Queue queue, Tensor y_, Tensor stat_, Tensor x_, Tensor w_, Tensor b_) {
  const int64_t N = x_.rows(), C = x_.cols();
  const char* name = "layernorm_forward";
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* y = y_.data<T>();
    float* stat = stat_.data<float>();
    const T *x = x_.data<T>(), *w = w_.data<T>(), *b = b_.data<T>();
    const bool fast =
        in_vectors({y_, x_, w_, b_}) && aligned(stat, 8) && with_group<T, 32>(C, [&](auto group, auto parts) {
          launch(queue, {name, blocks_for(N, warps / group), threads}, forward_kernel<T, group, parts>, y, stat, x, w,
                 b, N, C);
        });
    if (!fast) launch(queue, {name, blocks_for(N, 1), threads}, forward_any_kernel<T>, y, stat, x, w, b, C);
  });
}

void layernorm_backward(Queue queue, Tensor dx_, Tensor dw_, Tensor db_, Tensor dy_, Tensor x_, Tensor stat_,
                        Tensor w_) {
  const int64_t N = x_.rows(), C = x_.cols();
  const char* name = "layernorm_backward";
  with_compute_type(x_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* dx = dx_.data<T>();
    const T *dy = dy_.data<T>(), *x = x_.data<T>(), *w = w_.data<T>();
    const float* stat = stat_.data<float>();
    float* partial = static_cast<float*>(queue.workspace);
    unsigned blocks = 0;
    const auto run = [&](auto group, auto parts) {
      constexpr int groups = warps / group;
      blocks = partial_blocks(ceil_div(N, groups), 2 * C);
      const int64_t shared = groups > 1 ? 2 * C * static_cast<int64_t>(sizeof(float)) : 0;
      launch(queue, {name, blocks, threads, shared}, backward_kernel<T, group, parts>, dx, partial, dy, x, stat, w, N,
             C);
    };
    const bool fast = in_vectors({dx_, dy_, x_, w_}) && aligned(stat, 8) &&
                      (with_group<T, 16>(C, run) || with_group<T, 32, warps>(C, run));
    if (!fast) {
      blocks = partial_blocks(N, 2 * C);
      launch(queue, {name, blocks, threads}, backward_any_kernel<T>, dx, partial, dy, x, stat, w, N, C);
    }
    finish_column_sums(queue, name, dw_.data<float>(), db_.data<float>(), C, blocks, 2 * C);
  });
}

}  // namespace megalith::cuda
