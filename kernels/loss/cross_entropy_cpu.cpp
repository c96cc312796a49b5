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

void cross_entropy_forward(Tensor losses_, Tensor logits_, Tensor targets_, const VocabularyPart& part) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t V = part.count, width = logits_.cols();
  check_targets("cross_entropy_forward", targets, logits_.rows(), part);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = losses_.data<float>();
    const T* logits = logits_.data<T>();
    parallel_for(logits_.rows(), 8 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T* z = logits + n * width;
        losses[n] = targets[n] < 0 ? 0 : loss_of(softmax_row(z, V), get(z[targets[n]]));
      }
    });
  });
}

void cross_entropy_forward_backward(Tensor losses_, Tensor logits_, Tensor targets_, const VocabularyPart& part,
                                    const GradientScale& scale_) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t V = part.count, width = logits_.cols();
  check_targets("cross_entropy_forward_backward", targets, logits_.rows(), part);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = losses_.data<float>();
    T* logits = logits_.data<T>();
    const float scale = value_of(scale_);
    parallel_for(logits_.rows(), 16 * V, [=](int64_t begin, int64_t end) {
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

void softmax_part(Tensor stats_, Tensor logits_, Tensor targets_, const VocabularyPart& part) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t N = logits_.rows(), V = part.count, width = logits_.cols();
  check_targets("softmax_part", targets, N, part);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float *max = stats_.data<float>(), *sum = max + N, *target = sum + N;
    const T* logits = logits_.data<T>();
    parallel_for(N, 8 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        const T* z = logits + n * width;
        const SoftmaxRow row = softmax_row(z, targets[n] < 0 ? 0 : V);
        max[n] = row.max;
        sum[n] = row.sum;
        target[n] = part.holds(targets[n]) ? get(z[targets[n] - part.first]) : 0;
      }
    });
  });
}

void merge_softmax(Tensor stats_, Tensor max_) {
  const int64_t N = max_.numel();
  float *mine = stats_.data<float>(), *sum = mine + N;
  const float* max = max_.data<float>();
  for (int64_t n = 0; n < N; n++) {
    // Equal maxima may be infinite, and inf - inf would be NaN.
    if (mine[n] == max[n]) continue;
    sum[n] = static_cast<float>(static_cast<double>(sum[n]) * std::exp(static_cast<double>(mine[n] - max[n])));
    mine[n] = max[n];
  }
}

void cross_entropy_loss(Tensor losses_, Tensor stats_, Tensor targets_) {
  const int64_t N = losses_.numel();
  const int32_t* targets = targets_.data<int32_t>();
  const float *max = stats_.data<float>(), *sum = max + N, *target = sum + N;
  float* losses = losses_.data<float>();
  for (int64_t n = 0; n < N; n++) losses[n] = targets[n] < 0 ? 0 : loss_of({max[n], sum[n]}, target[n]);
}

void cross_entropy_gradient(Tensor logits_, Tensor stats_, Tensor targets_, const VocabularyPart& part,
                            const GradientScale& scale_) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t N = logits_.rows(), V = part.count, width = logits_.cols();
  check_targets("cross_entropy_gradient", targets, N, part);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const float *max = stats_.data<float>(), *sum = max + N;
    T* logits = logits_.data<T>();
    const float scale = value_of(scale_);
    parallel_for(N, 8 * width, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        T* z = logits + n * width;
        if (targets[n] < 0)
          std::fill(z, z + width, T{});
        else
          gradient_row(z, V, width, {max[n], sum[n]}, part.holds(targets[n]) ? targets[n] - part.first : -1, scale);
      }
    });
  });
}

}  // namespace megalith::cpu
