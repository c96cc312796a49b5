#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/loops/loops_cpu.h"
#include "kernels/loops/vector_math_cpu.h"
#include "kernels/loss/cross_entropy.h"

namespace megalith::cpu {

namespace {
struct SoftmaxRow {
  float max, sum;  // sum of exp(z - max)
};

// One pass over memory: blocks fit the first cache, and the sum is rescaled when a block raises the maximum. The
// maximum is finite or above, since -inf - -inf would be NaN, and never NaN: a NaN shows in the sum. Compiled once, so
// that whole and parts agree to the bit.
template <class T>
[[gnu::noipa]] SoftmaxRow softmax_row(const T* z, int64_t V) {
  constexpr int64_t block = 2048;
  float max = std::numeric_limits<float>::lowest();
  double sum = 0;
  for (int64_t first = 0; first < V; first += block) {
    const int64_t last = first + block < V ? first + block : V;
    float top = max;
#pragma omp simd reduction(max : top)
    for (int64_t v = first; v < last; v++) top = get(z[v]) > top ? get(z[v]) : top;
    if (top > max) sum *= static_cast<double>(cpu::exp(max - top));
    max = top;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t v = first; v < last; v++) part += cpu::exp(get(z[v]) - max);
    sum += static_cast<double>(part);
  }
  return {max, static_cast<float>(sum)};
}

// Overwrites z[0, V) with its gradient and the padding up to `width` with 0; target is a column, or -1 if not held.
template <class T>
[[gnu::noipa]] void gradient_row(T* z, int64_t V, int64_t width, SoftmaxRow row, int64_t target, float scale) {
  const float target_logit = target >= 0 ? get(z[target]) : 0;
  const float factor = scale / row.sum;
#pragma omp simd
  for (int64_t v = 0; v < V; v++) put(z[v], cpu::exp(get(z[v]) - row.max) * factor);
  if (target >= 0) put(z[target], (cpu::exp(target_logit - row.max) / row.sum - 1) * scale);
  std::fill(z + V, z + width, T{});
}

// Parts and whole rows use the same expression, and so get the same bits.
float loss_of(SoftmaxRow row, float target_logit) { return std::log(row.sum) + (row.max - target_logit); }

void check_targets(const char* op, const int32_t* targets, int64_t N, const VocabularyPart& part) {
  for (int64_t n = 0; n < N; n++)
    CHECK(-1 <= targets[n] && targets[n] < part.total, "{}: target {} at row {}, but the vocabulary has {}", op,
          targets[n], n, part.total);
}

float value_of(const GradientScale& scale) {
  double value = scale.factor;
  for (const Tensor& factor : {scale.in_memory, scale.also_in_memory})
    if (!factor.empty()) value *= *factor.data<double>();
  return static_cast<float>(value);
}
}  // namespace

void run(Queue&, const CrossEntropyForward& op) {
  const int32_t* targets = op.targets.data<int32_t>();
  const int64_t V = op.part.count, width = op.logits.cols();
  check_targets(op.name, targets, op.logits.rows(), op.part);
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = op.losses.data<float>();
    const T* logits = op.logits.data<T>();
    parallel_for(op.logits.rows(), 8 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T* z = logits + n * width;
        losses[n] = targets[n] < 0 ? 0 : loss_of(softmax_row(z, V), get(z[targets[n]]));
      }
    });
  });
}

void run(Queue&, const CrossEntropyForwardBackward& op) {
  const int32_t* targets = op.targets.data<int32_t>();
  const int64_t V = op.part.count, width = op.logits.cols();
  check_targets(op.name, targets, op.logits.rows(), op.part);
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = op.losses.data<float>();
    T* logits = op.logits.data<T>();
    const float scale = value_of(op.scale);
    parallel_for(op.logits.rows(), 16 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        T* z = logits + n * width;
        losses[n] = 0;
        if (targets[n] < 0) {
          std::fill(z, z + width, T{});
          continue;
        }
        const SoftmaxRow row = softmax_row(z, V);
        losses[n] = loss_of(row, get(z[targets[n]]));
        gradient_row(z, V, width, row, targets[n], scale);
      }
    });
  });
}

void run(Queue&, const SoftmaxPart& op) {
  const int32_t* targets = op.targets.data<int32_t>();
  const int64_t N = op.logits.rows(), V = op.part.count, width = op.logits.cols();
  check_targets(op.name, targets, N, op.part);
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float *max = op.stats.data<float>(), *sum = max + N, *target = sum + N;
    const T* logits = op.logits.data<T>();
    parallel_for(N, 8 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T* z = logits + n * width;
        const SoftmaxRow row = softmax_row(z, targets[n] < 0 ? 0 : V);
        max[n] = row.max;
        sum[n] = row.sum;
        target[n] = op.part.holds(targets[n]) ? get(z[targets[n] - op.part.first]) : 0;
      }
    });
  });
}

void run(Queue&, const MergeSoftmax& op) {
  const int64_t N = op.max.numel();
  float *mine = op.stats.data<float>(), *sum = mine + N;
  const float* max = op.max.data<float>();
  for (int64_t n = 0; n < N; n++) {
    // Equal maxima may be infinite, and inf - inf would be NaN.
    if (mine[n] == max[n]) continue;
    sum[n] = static_cast<float>(static_cast<double>(sum[n]) * std::exp(static_cast<double>(mine[n] - max[n])));
    mine[n] = max[n];
  }
}

void run(Queue&, const CrossEntropyLoss& op) {
  const int64_t N = op.losses.numel();
  const int32_t* targets = op.targets.data<int32_t>();
  const float *max = op.stats.data<float>(), *sum = max + N, *target = sum + N;
  float* losses = op.losses.data<float>();
  for (int64_t n = 0; n < N; n++) losses[n] = targets[n] < 0 ? 0 : loss_of({max[n], sum[n]}, target[n]);
}

void run(Queue&, const CrossEntropyGradient& op) {
  const int32_t* targets = op.targets.data<int32_t>();
  const int64_t N = op.logits.rows(), V = op.part.count, width = op.logits.cols();
  check_targets(op.name, targets, N, op.part);
  with_compute_type(op.logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const float *max = op.stats.data<float>(), *sum = max + N;
    T* logits = op.logits.data<T>();
    const float scale = value_of(op.scale);
    parallel_for(N, 8 * width, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        T* z = logits + n * width;
        if (targets[n] < 0)
          std::fill(z, z + width, T{});
        else
          gradient_row(z, V, width, {max[n], sum[n]}, op.part.holds(targets[n]) ? targets[n] - op.part.first : -1,
                       scale);
      }
    });
  });
}

}  // namespace megalith::cpu
