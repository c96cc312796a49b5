// A block owns a row. Its threads keep a running maximum and the sum of exponentials relative to it, so that the row is
// read once for the statistics. If the row fits into shared memory, the gradient is computed from the copy there, and
// device memory is read only once in all. Every op uses the same functions in the same order of sums, so that a
// vocabulary of one part gives the same bits as the whole.
#include <cmath>
#include <limits>

#include "kernels/loops/device_cuda.h"
#include "kernels/loss/cross_entropy.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 512, warps = threads / warp_size;

// The fixed part of a block's shared memory; the row follows.
struct BlockShared {
  float maxima[warps], sums[warps];
};
constexpr int64_t fixed_bytes = sizeof(BlockShared);
static_assert(fixed_bytes % 16 == 0);

__device__ constexpr float lowest() { return std::numeric_limits<float>::lowest(); }

template <class T>
__device__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return fast_exp(x);
  }
}

// As in cross_entropy_cpu.cpp: max is finite or above and never NaN; a NaN shows in the sum of exp(z - max).
struct Softmax {
  float max, sum;
};

// Rescales the sum to `max` if that is larger.
template <class T>
__device__ void raise(Softmax& s, float max) {
  if (!(max > s.max)) return;
  s.sum *= exponential<T>(s.max - max);
  s.max = max;
}

// Merges over the block; every thread gets the same bits.
template <class T>
__device__ Softmax block_softmax(Softmax mine) {
  BlockShared& shared = *shared_memory<BlockShared>();
  float max = warp_max(mine.max);
  if (lane_index() == 0) shared.maxima[warp_index()] = max;
  sync_threads();
  max = shared.maxima[0];
  for (int w = 1; w < warps; w++) max = fmaxf(max, shared.maxima[w]);
  raise<T>(mine, max);
  const float sum = warp_sum(mine.sum);
  if (lane_index() == 0) shared.sums[warp_index()] = sum;
  sync_threads();
  float total = shared.sums[0];
  for (int w = 1; w < warps; w++) total += shared.sums[w];
  return {max, total};
}

// Computes the softmax of z[0, V); keep(c, vector) gets each vector of it.
template <class T, int n, class Keep>
__device__ Softmax row_softmax(const T* z, int64_t V, Keep&& keep) {
  Softmax mine{lowest(), 0};
  const int64_t whole = V / n * n;
  const auto take = [&](const auto& from, auto width) {
    float values[width], max = lowest();
    for (int k = 0; k < width; k++) {
      values[k] = to_float(from[k]);
      max = fmaxf(max, values[k]);
    }
    raise<T>(mine, max);
    for (int k = 0; k < width; k++) mine.sum += exponential<T>(values[k] - mine.max);
  };
  constexpr int steps = 4;
  for (int64_t first = threadIdx.x * n; first < whole; first += steps * threads * n) {
    Vector<T, n> from[steps];
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (const int64_t c = first + step * threads * n; c < whole) from[step] = load<n>(z + c);
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (const int64_t c = first + step * threads * n; c < whole) {
        keep(c, from[step]);
        take(from[step], std::integral_constant<int, n>{});
      }
  }
  if constexpr (n > 1) {
    if (const int64_t c = whole + threadIdx.x; c < V) {
      const Vector<T, 1> from = load<1>(z + c);
      keep(c, from);
      take(from, std::integral_constant<int, 1>{});
    }
  }
  return block_softmax<T>(mine);
}

// GradientScale as a kernel argument.
struct Scale {
  double factor;
  const double *in_memory, *also_in_memory;  // or null
  explicit Scale(const GradientScale& s)
      : factor(s.factor),
        in_memory(s.in_memory.empty() ? nullptr : s.in_memory.data<double>()),
        also_in_memory(s.also_in_memory.empty() ? nullptr : s.also_in_memory.data<double>()) {}
  __device__ float value() const {
    const double scaled = in_memory ? factor * *in_memory : factor;
    return static_cast<float>(also_in_memory ? scaled * *also_in_memory : scaled);
  }
};

// Overwrites z[0, V) with the gradient of the logits in `from`, and the padding up to width with 0.
template <class T, int n>
__device__ void write_gradient(T* z, const T* from, int64_t V, int64_t width, Softmax s, int64_t target,
                               float target_logit, float scale) {
  const float factor = scale / s.sum;
  const T of_target = to<T>((exponential<T>(target_logit - s.max) / s.sum - 1) * scale);
  const int64_t whole = V / n * n;
  for (int64_t c = threadIdx.x * n; c < whole; c += threads * n) {
    const Vector<T, n> logits = load<n>(from + c);
    Vector<T, n> result;
    for (int k = 0; k < n; k++)
      result[k] = c + k == target ? of_target : to<T>(exponential<T>(to_float(logits[k]) - s.max) * factor);
    store_once(z + c, result);
  }
  for (int64_t c = whole + threadIdx.x; c < width; c += threads) {
    if (c >= V) {
      z[c] = to<T>(0.0f);
    } else {
      z[c] = c == target ? of_target : to<T>(exponential<T>(to_float(from[c]) - s.max) * factor);
    }
  }
}
template <class T, int n>
__device__ void write_zeros(T* z, int64_t width) {
  Vector<T, n> zeros;
  for (int k = 0; k < n; k++) zeros[k] = to<T>(0.0f);
  for (int64_t c = threadIdx.x * n; c < width; c += threads * n) store(z + c, zeros);
}

template <class T>
__device__ float logit_of(const T* z, int64_t column, bool valid) {
  return column >= 0 ? to_float(z[column]) : valid ? 0.0f : NAN;
}
// Parts and whole rows use the same expression, and so get the same bits.
__device__ inline float loss_of(Softmax s, float target_logit) { return logf(s.sum) + (s.max - target_logit); }

// losses null: no loss. gradient null: the logits stay. in_shared: the launch has shared memory for the row.
template <class T, int n, bool in_shared>
__global__ void __launch_bounds__(threads)
    whole_kernel(float* losses, T* gradient, const T* logits, const int32_t* targets, int64_t width,
                 VocabularyPart part, Scale scale) {
  const int64_t row = blockIdx.x, target = targets[row], V = part.count;
  const T* z = logits + row * width;
  T* const out = gradient ? gradient + row * width : nullptr;
  if (target == -1) {
    if (threadIdx.x == 0) losses[row] = 0;
    if (out) write_zeros<T, n>(out, width);
    return;
  }
  const int64_t column = part.index_of(target);
  const float target_logit = logit_of(z, column, part.exists(target));
  T* const kept = in_shared ? shared_memory<T>(fixed_bytes) : nullptr;
  const Softmax s = row_softmax<T, n>(z, V, [&](int64_t c, const auto& from) {
    if constexpr (in_shared) store(kept + c, from);
  });
  if (threadIdx.x == 0) losses[row] = loss_of(s, target_logit);
  if (out) write_gradient<T, n>(out, in_shared ? kept : z, V, width, s, column, target_logit, scale.value());
}

template <class T, int n>
__global__ void __launch_bounds__(threads)
    part_kernel(float* stats, const T* logits, const int32_t* targets, int64_t N, int64_t width, VocabularyPart part) {
  const int64_t row = blockIdx.x, target = targets[row];
  const T* z = logits + row * width;
  const Softmax s = row_softmax<T, n>(z, target == -1 ? 0 : part.count, [](int64_t, const auto&) {});
  if (threadIdx.x != 0) return;
  stats[row] = s.max;
  stats[N + row] = s.sum;
  stats[2 * N + row] = logit_of(z, part.index_of(target), target == -1 || part.exists(target));
}

template <class T, int n>
__global__ void __launch_bounds__(threads) gradient_kernel(T* logits, const float* stats, const int32_t* targets,
                                                           int64_t N, int64_t width, VocabularyPart part, Scale scale) {
  const int64_t row = blockIdx.x, target = targets[row];
  T* z = logits + row * width;
  if (target == -1) return write_zeros<T, n>(z, width);
  const int64_t column = part.index_of(target);
  const float target_logit = logit_of(z, column, true);
  sync_threads();  // the target's logit is overwritten below
  write_gradient<T, n>(z, z, part.count, width, {stats[row], stats[N + row]}, column, target_logit, scale.value());
}

constexpr int row_threads = 128;  // used by kernels with a thread a row

__global__ void __launch_bounds__(row_threads) merge_kernel(float* stats, const float* max, int64_t N) {
  const int64_t row = int64_t{blockIdx.x} * row_threads + threadIdx.x;
  // Equal maxima may be infinite, and inf - inf would be NaN.
  if (row >= N || stats[row] == max[row]) return;
  stats[N + row] =
      static_cast<float>(static_cast<double>(stats[N + row]) * exp(static_cast<double>(stats[row] - max[row])));
  stats[row] = max[row];
}
__global__ void __launch_bounds__(row_threads)
    loss_kernel(float* losses, const float* stats, const int32_t* targets, int64_t N) {
  const int64_t row = int64_t{blockIdx.x} * row_threads + threadIdx.x;
  if (row < N) losses[row] = targets[row] == -1 ? 0 : loss_of({stats[row], stats[N + row]}, stats[2 * N + row]);
}

void run_whole(Queue queue, const char* name, const CrossEntropyForward& op, bool write, const GradientScale& scale) {
  const int64_t N = op.logits.rows(), width = op.logits.cols();
  if (N == 0) return;
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* const gradient = write ? op.logits.data<T>() : nullptr;
    const int64_t row_bytes = op.part.count * static_cast<int64_t>(sizeof(T));
    with_width<16 / sizeof(T)>(in_vectors({op.logits}), [&](auto n) {
      const bool in_shared = write && fixed_bytes + row_bytes <= queue.chip.shared_memory;
      launch(queue, {name, blocks_for(N, 1), threads, fixed_bytes + (in_shared ? row_bytes : 0)},
             in_shared ? whole_kernel<T, n, true> : whole_kernel<T, n, false>, op.losses.data<float>(), gradient,
             op.logits.data<T>(), op.targets.data<int32_t>(), width, op.part, Scale(scale));
    });
  });
}
}  // namespace

void run(Queue queue, const CrossEntropyForward& op) { run_whole(queue, op.name, op, false, {.factor = 0}); }
void run(Queue queue, const CrossEntropyForwardBackward& op) {
  run_whole(queue, op.name, {.losses = op.losses, .logits = op.logits, .targets = op.targets, .part = op.part}, true,
            op.scale);
}

void run(Queue queue, const SoftmaxPart& op) {
  const int64_t N = op.logits.rows(), width = op.logits.cols();
  if (N == 0) return;
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(queue, {op.name, blocks_for(N, 1), threads, fixed_bytes},
           in_vectors({op.logits}) ? part_kernel<T, 16 / sizeof(T)> : part_kernel<T, 1>, op.stats.data<float>(),
           op.logits.data<T>(), op.targets.data<int32_t>(), N, width, op.part);
  });
}

void run(Queue queue, const MergeSoftmax& op) {
  const int64_t N = op.max.numel();
  if (N == 0) return;
  launch(queue, {op.name, blocks_for(N, row_threads), row_threads}, merge_kernel, op.stats.data<float>(),
         op.max.data<float>(), N);
}

void run(Queue queue, const CrossEntropyLoss& op) {
  const int64_t N = op.losses.numel();
  if (N == 0) return;
  launch(queue, {op.name, blocks_for(N, row_threads), row_threads}, loss_kernel, op.losses.data<float>(),
         op.stats.data<float>(), op.targets.data<int32_t>(), N);
}

void run(Queue queue, const CrossEntropyGradient& op) {
  const int64_t N = op.logits.rows(), width = op.logits.cols();
  if (N == 0) return;
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(queue, {op.name, blocks_for(N, 1), threads},
           in_vectors({op.logits}) ? gradient_kernel<T, 16 / sizeof(T)> : gradient_kernel<T, 1>, op.logits.data<T>(),
           op.stats.data<float>(), op.targets.data<int32_t>(), N, width, op.part, Scale(op.scale));
  });
}

}  // namespace megalith::cuda
