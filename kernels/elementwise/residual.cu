// Dropout, and residuals with dropout. A thread takes four runs of a row: as the mask is drawn (dropout_cuda.h), or,
// without a mask, so that the lanes of a warp are neighbours in each run.
#include "kernels/elementwise/dropout_cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual.h"
#include "kernels/loops/column_sums_cuda.h"

namespace megalith::cuda {

namespace {
using namespace mask_runs;
constexpr int threads = 256;

// Calls f(row, first column as the mask is drawn, thread of the row) for this thread's runs, if it has any.
template <int n, class F>
__device__ void with_runs(int64_t N, int64_t C, F&& f) {
  const int64_t each = masked_threads<n>(C), i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (const int64_t row = i / each; row < N) f(row, masked_column<n>(i % each), i % each);
}
template <int n>
unsigned runs_grid(int64_t N, int64_t C) {
  return blocks_for(N * masked_threads<n>(C), threads);
}

template <class T, class R, int n>
__global__ void __launch_bounds__(threads)
    dropout_kernel(T* y, const R* x, int64_t N, int64_t C, DropoutMask mask, int64_t first_column) {
  with_runs<n>(N, C, [&](int64_t row, int64_t first, int64_t) {
    Vector<R, n> from[count];
#pragma unroll
    for (int run = 0; run < count; run++)
      if (const int64_t c = first + apart * run; c < C) from[run] = load<n>(x + row * C + c);
    float factors[count][n];
    draw(factors, mask.now(), row, first_column + first);
#pragma unroll
    for (int run = 0; run < count; run++) {
      const int64_t c = first + apart * run;
      if (c >= C) continue;
      Vector<T, n> result;
      for (int k = 0; k < n; k++) result[k] = to<T>(to_float(from[run][k]) * factors[run][k]);
      store(y + row * C + c, result);
    }
  });
}

// Used where the columns do not begin with a group of the mask: one element a thread.
template <class T>
__global__ void __launch_bounds__(threads)
    dropout_any_kernel(T* y, const T* x, int64_t N, int64_t C, DropoutMask given, int64_t first_column) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= N * C) return;
  const DropoutMask mask = given.now();
  y[i] = to<T>(to_float(x[i]) * draw_one(mask, i / C, first_column + i % C));
}

template <class T, class R, int n, bool masked>
__global__ void __launch_bounds__(threads)
    forward_kernel(R* y, const R* x, const T* h, const T* b, int64_t N, int64_t C, DropoutMask mask) {
  const int64_t next = masked ? apart : masked_threads<n>(C) * n;  // distance between a thread's runs
  with_runs<n>(N, C, [&](int64_t row, int64_t drawn, int64_t thread) {
    const int64_t first = masked ? drawn : thread * n;
    Vector<R, n> input[count];
    Vector<T, n> branch[count];
#pragma unroll
    for (int run = 0; run < count; run++)
      if (const int64_t c = first + next * run; c < C) {
        input[run] = load_once<n>(x + row * C + c);
        branch[run] = load_once<n>(h + row * C + c);
      }
    float factors[count][n];
    if constexpr (masked) draw(factors, mask.now(), row, first);
#pragma unroll
    for (int run = 0; run < count; run++) {
      const int64_t c = first + next * run;
      if (c >= C) continue;
      const Vector<T, n> bias = load_or_zeros<n>(b, c);
      Vector<R, n> result;
      for (int k = 0; k < n; k++) {
        float v = to_float(branch[run][k]) + to_float(bias[k]);
        if constexpr (masked) v *= factors[run][k];
        result[k] = to<R>(to_float(input[run][k]) + v);
      }
      store(y + row * C + c, result);
    }
  });
}

// A block sums `strip` columns of every gridDim.y-th bundle of `lines` rows into a row of `partial`. dh may be null:
// dy.
constexpr int strip = 4 * group;
template <class T, class R, int n, bool masked>
__global__ void __launch_bounds__(threads)
    backward_kernel(T* dh, float* partial, const R* dy, int64_t N, int64_t C, DropoutMask given) {
  constexpr int each = masked_threads<n>(strip), lines = threads / each;
  // Not by columns: sum i of a line's thread is in slot i * each + thread, so that a warp uses every bank once.
  __shared__ float sums[lines][strip + each];
  const int line = static_cast<int>(threadIdx.x) / each, mine = static_cast<int>(threadIdx.x) % each;
  const int64_t first = int64_t{blockIdx.x} * strip + masked_column<n>(mine);
  [[maybe_unused]] const DropoutMask mask = given.now();
  float sum[count][n] = {};
  for (int64_t row = int64_t{blockIdx.y} * lines + line; row < N; row += int64_t{gridDim.y} * lines) {
    if (first >= C) break;
    Vector<R, n> from[count];
#pragma unroll
    for (int run = 0; run < count; run++)
      if (const int64_t c = first + apart * run; c < C) from[run] = load_once<n>(dy + row * C + c);
    float factors[count][n];
    if constexpr (masked) draw(factors, mask, row, first);
#pragma unroll
    for (int run = 0; run < count; run++) {
      const int64_t c = first + apart * run;
      if (c >= C) continue;
      // The gradient of the bias is the sum of dh as it is rounded there.
      Vector<T, n> result;
      for (int k = 0; k < n; k++) {
        if constexpr (masked)
          result[k] = to<T>(to_float(from[run][k]) * factors[run][k]);
        else
          result[k] = convert<T>(from[run][k]);
        sum[run][k] += to_float(result[k]);
      }
      if (dh) store(dh + row * C + c, result);
    }
  }
  for (int run = 0; run < count; run++)
    for (int k = 0; k < n; k++) sums[line][(run * n + k) * each + mine] = sum[run][k];
  sync_threads();
  static_assert(strip == threads);
  const int i = static_cast<int>(threadIdx.x) / each;
  const int64_t c = int64_t{blockIdx.x} * strip + masked_column<n>(mine) + apart * (i / n) + i % n;
  if (c >= C) return;
  float total = 0;
  for (int from = 0; from < lines; from++) total += sums[from][threadIdx.x];
  partial[blockIdx.y * C + c] = total;
}
}  // namespace

void run(Queue queue, const ApplyDropout& op) {
  if (!op.dropout.active()) {
    if (op.y.raw() != op.x.raw()) run(queue, Copy{.y = op.y, .x = op.x});
    return;
  }
  const int64_t N = op.x.rows(), C = op.x.cols();
  if (N * C == 0) return;
  with_residual_types(op.y.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    if constexpr (std::is_same_v<T, R>)  // a residual's masks begin with a group
      if (op.dropout.first_column % group != 0)
        return launch(queue, {op.name, blocks_for(N * C, threads), threads}, dropout_any_kernel<T>, op.y.data<T>(),
                      op.x.data<T>(), N, C, mask_of(op.dropout), op.dropout.first_column);
    with_width<16 / sizeof(R)>(in_vectors({op.y, op.x}), [&](auto n) {
      launch(queue, {op.name, runs_grid<n>(N, C), threads}, dropout_kernel<T, R, n>, op.y.data<T>(), op.x.data<R>(), N,
             C, mask_of(op.dropout), op.dropout.first_column);
    });
  });
}

void run(Queue queue, const ResidualForward& op) {
  const int64_t N = op.x.rows(), C = op.x.cols();
  if (N * C == 0) return;
  with_residual_types(op.h.dtype(), op.x.dtype(), [&]<class T, class R>(T, R) {
    with_width<16 / sizeof(R)>(in_vectors({op.y, op.x, op.h, op.b}), [&](auto n) {
      launch(queue, {op.name, runs_grid<n>(N, C), threads},
             op.dropout.active() ? forward_kernel<T, R, n, true> : forward_kernel<T, R, n, false>, op.y.data<R>(),
             op.x.data<R>(), op.h.data<T>(), op.b.data_or_null<T>(), N, C, mask_of(op.dropout));
    });
  });
}

void run(Queue queue, const ResidualBackward& op) {
  const int64_t N = op.dy.rows(), C = op.dy.cols();
  if (N * C == 0) return;
  if (op.db.empty()) return run(queue, ApplyDropout{.y = op.dh, .x = op.dy, .dropout = op.dropout});
  with_residual_types(op.dh.dtype(), op.dy.dtype(), [&]<class T, class R>(T, R) {
    T* dh = op.dropout.active() || op.dh.raw() != op.dy.raw() ? op.dh.data<T>() : nullptr;
    unsigned blocks = 0;
    with_width<16 / sizeof(R)>(in_vectors({op.dh, op.dy}), [&](auto n) {
      constexpr int64_t lines = threads / masked_threads<n>(strip), loops = 2;
      const unsigned strips = blocks_for(C, strip);
      // Eight blocks in all for each of the 132 SMs of H100 and H200: more would only make more partial sums.
      blocks = partial_blocks(std::min(ceil_div(N, lines * loops), ceil_div(1056, strips)), C);
      launch(queue, {op.name, dim3(strips, blocks), threads},
             op.dropout.active() ? backward_kernel<T, R, n, true> : backward_kernel<T, R, n, false>, dh,
             static_cast<float*>(queue.workspace), op.dy.data<R>(), N, C, mask_of(op.dropout));
    });
    finish_column_sums(queue, op.name, {op.db.data<float>()}, 1, C, blocks);
  });
}

}  // namespace megalith::cuda
