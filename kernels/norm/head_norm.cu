// A group of lanes takes a head of a row in vectors of 16 bytes, one for each lane, so that each element is read once.
// Heads that are not aligned, or too large, use kernels in which a warp reads one element for each lane.
#include <cmath>

#include "kernels/loops/column_sums_cuda.h"
#include "kernels/norm/head_norm.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, warps = threads / warp_size;

struct Heads {
  int64_t N, H, heads, D, width;  // heads: of q and k together
};
Heads heads_of(const Tensor& x, const AttentionDims& d) { return {x.rows(), d.H, d.H + d.kv(), d.D, d.qkv_width()}; }

template <class E, int lanes>
__global__ void __launch_bounds__(threads)
    forward_kernel(E* y, float* rstds, const E* x, const E* q_w, const E* k_w, Heads s, float epsilon) {
  constexpr int n = 16 / sizeof(E), groups = threads / lanes;
  const int64_t all = s.width / s.D, unit = int64_t{blockIdx.x} * groups + threadIdx.x / lanes;
  const int64_t row = unit / all, h = unit % all, c = static_cast<int64_t>(threadIdx.x) % lanes * n;
  const int64_t at = row * s.width + h * s.D + c;
  const bool has_part = row < s.N && c < s.D;
  Vector<E, n> v;
  float square = 0;
  if (has_part) {
    v = load_once<n>(x + at);
    for (int i = 0; i < n; i++) square += to_float(v[i]) * to_float(v[i]);
  }
  const float rstd = 1.0f / sqrtf(warp_sum<lanes>(square) / static_cast<float>(s.D) + epsilon);
  if (!has_part) return;
  if (h < s.heads) {  // else the head is of v
    const Vector<E, n> w = load<n>((h < s.H ? q_w : k_w) + c);
    for (int i = 0; i < n; i++) v[i] = to<E>(to_float(v[i]) * rstd * to_float(w[i]));
    if (c == 0) rstds[row * s.heads + h] = rstd;
  }
  store(y + at, v);
}

// The groups of all blocks take heads in turn, and sum the gradients of the weights in registers. The block writes
// their sums in the order of its groups.
template <class E, int lanes>
__global__ void __launch_bounds__(threads)
    backward_kernel(E* d, float* partial, const E* x, const float* rstds, const E* q_w, const E* k_w, Heads s) {
  constexpr int n = 16 / sizeof(E), groups = threads / lanes;
  const int64_t group = static_cast<int64_t>(threadIdx.x) / lanes, c = static_cast<int64_t>(threadIdx.x) % lanes * n;
  float dq_w[n] = {}, dk_w[n] = {};
  // All lanes of a warp run equally many iterations.
  for (int64_t first = int64_t{blockIdx.x} * groups; first < s.N * s.heads; first += int64_t{gridDim.x} * groups) {
    const int64_t unit = first + group, row = unit / s.heads, h = unit % s.heads, at = row * s.width + h * s.D + c;
    const bool has_part = row < s.N && c < s.D, of_q = h < s.H;
    Vector<E, n> dy, v, w;
    float rstd = 0, dot = 0;
    if (has_part) {
      dy = load_once<n>(d + at);
      v = load_once<n>(x + at);
      w = load<n>((of_q ? q_w : k_w) + c);
      rstd = rstds[unit];
      for (int i = 0; i < n; i++) {
        const float xhat = to_float(v[i]) * rstd, product = to_float(dy[i]) * xhat;
        dot += to_float(w[i]) * product;
        dq_w[i] += of_q ? product : 0;
        dk_w[i] += of_q ? 0 : product;
      }
    }
    dot = warp_sum<lanes>(dot) / static_cast<float>(s.D);
    if (!has_part) continue;
    for (int i = 0; i < n; i++) dy[i] = to<E>(rstd * (to_float(dy[i]) * to_float(w[i]) - to_float(v[i]) * rstd * dot));
    store(d + at, dy);
  }
  float* sums = shared_memory<float>();  // (groups, 2, D)
  if (c < s.D)
    for (int i = 0; i < n; i++) {
      sums[group * 2 * s.D + c + i] = dq_w[i];
      sums[group * 2 * s.D + s.D + c + i] = dk_w[i];
    }
  sync_threads();
  for (int64_t column = threadIdx.x; column < 2 * s.D; column += threads) {
    float sum = 0;
    for (int g = 0; g < groups; g++) sum += sums[g * 2 * s.D + column];
    partial[blockIdx.x * 2 * s.D + column] = sum;
  }
}

template <class E>
__global__ void __launch_bounds__(threads)
    forward_any_kernel(E* y, float* rstds, const E* x, const E* q_w, const E* k_w, Heads s, float epsilon) {
  const int64_t all = s.width / s.D, unit = int64_t{blockIdx.x} * warps + warp_index();
  if (unit >= s.N * all) return;
  const int64_t n = unit / all, h = unit % all, begin = n * s.width + h * s.D;
  if (h >= s.heads) {  // the head is of v
    for (int64_t c = lane_index(); c < s.D; c += warp_size) y[begin + c] = x[begin + c];
    return;
  }
  float square = 0;
  for (int64_t c = lane_index(); c < s.D; c += warp_size) square += to_float(x[begin + c]) * to_float(x[begin + c]);
  const float rstd = 1.0f / sqrtf(warp_sum(square) / static_cast<float>(s.D) + epsilon);
  const E* w = h < s.H ? q_w : k_w;
  for (int64_t c = lane_index(); c < s.D; c += warp_size)
    y[begin + c] = to<E>(to_float(x[begin + c]) * rstd * to_float(w[c]));
  if (lane_index() == 0) rstds[n * s.heads + h] = rstd;
}

// A block takes rows in turn, and each of its warps takes heads of them in turn. Each warp sums the gradients of the
// weights in its part of shared memory, (warps, 2, D), and the block writes their sums in the order of the warps.
template <class E>
__global__ void __launch_bounds__(threads)
    backward_any_kernel(E* d, float* partial, const E* x, const float* rstds, const E* q_w, const E* k_w, Heads s) {
  float *all = shared_memory<float>(), *mine = all + warp_index() * 2 * s.D;
  for (int64_t c = lane_index(); c < s.D; c += warp_size) mine[c] = mine[s.D + c] = 0;
  for (int64_t n = blockIdx.x; n < s.N; n += gridDim.x)
    for (int64_t h = warp_index(); h < s.heads; h += warps) {
      const int64_t begin = n * s.width + h * s.D;
      const E* w = h < s.H ? q_w : k_w;
      float *dw = mine + (h < s.H ? 0 : s.D), dot = 0;
      const float rstd = rstds[n * s.heads + h];
      for (int64_t c = lane_index(); c < s.D; c += warp_size) {
        const float xhat = to_float(x[begin + c]) * rstd, dy = to_float(d[begin + c]);
        dot += dy * to_float(w[c]) * xhat;
        dw[c] += dy * xhat;
      }
      dot = warp_sum(dot) / static_cast<float>(s.D);
      for (int64_t c = lane_index(); c < s.D; c += warp_size)
        d[begin + c] = to<E>(rstd * (to_float(d[begin + c]) * to_float(w[c]) - to_float(x[begin + c]) * rstd * dot));
    }
  sync_threads();
  for (int64_t c = threadIdx.x; c < 2 * s.D; c += threads) {
    float sum = 0;
    for (int warp = 0; warp < warps; warp++) sum += all[warp * 2 * s.D + c];
    partial[blockIdx.x * 2 * s.D + c] = sum;
  }
}

// Calls f(lanes) with the constant number of lanes that hold a head in vectors, or with 0 if no number does.
template <class E, class F>
void with_lanes(std::initializer_list<Tensor> tensors, int64_t D, F&& f) {
  constexpr int n = 16 / sizeof(E);
  bool vectors = D % n == 0;
  for (const Tensor& t : tensors) vectors = vectors && aligned(t.raw());
  if (!vectors || D > 32 * n) return f(std::integral_constant<int, 0>{});
  if (D > 16 * n) return f(std::integral_constant<int, 32>{});
  if (D > 8 * n) return f(std::integral_constant<int, 16>{});
  f(std::integral_constant<int, 8>{});
}
}  // namespace

void run(Queue queue, const HeadNormForward& op) {
  const Heads s = heads_of(op.x, op.dims);
  if (s.N == 0) return;
  const int64_t units = s.N * (s.width / s.D);
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    with_lanes<E>({op.y, op.x, op.q_w, op.k_w}, s.D, [&](auto lanes) {
      const auto run = [&](unsigned blocks, auto kernel) {
        launch(queue, {op.name, blocks, threads}, kernel, op.y.data<E>(), op.rstd.data<float>(), op.x.data<E>(),
               op.q_w.data<E>(), op.k_w.data<E>(), s, op.epsilon);
      };
      if constexpr (lanes == 0) {
        run(blocks_for(units, warps), forward_any_kernel<E>);
      } else {
        run(blocks_for(units, threads / lanes), forward_kernel<E, lanes>);
      }
    });
  });
}

void run(Queue queue, const HeadNormBackward& op) {
  const Heads s = heads_of(op.x, op.dims);
  if (s.N == 0) return;
  unsigned blocks = 0;
  with_compute_type(op.x.dtype(), [&](auto tag) {
    using E = decltype(tag);
    with_lanes<E>({op.d, op.x, op.q_w, op.k_w}, s.D, [&](auto lanes) {
      const auto run = [&](int64_t groups, auto kernel) {
        launch(queue, {op.name, blocks, threads, groups * 2 * s.D * static_cast<int64_t>(sizeof(float))}, kernel,
               op.d.data<E>(), static_cast<float*>(queue.workspace), op.x.data<E>(), op.rstd.data<float>(),
               op.q_w.data<E>(), op.k_w.data<E>(), s);
      };
      if constexpr (lanes == 0) {
        blocks = partial_blocks(s.N, 2 * s.D);
        run(warps, backward_any_kernel<E>);
      } else {
        constexpr int groups = threads / lanes;
        blocks = partial_blocks(ceil_div(s.N * s.heads, groups), 2 * s.D, 4);
        run(groups, backward_kernel<E, lanes>);
      }
    });
  });
  finish_column_sums(queue, op.name, {op.dq_w.data_or_null<float>(), op.dk_w.data_or_null<float>()}, 2, s.D, blocks);
}

}  // namespace megalith::cuda
