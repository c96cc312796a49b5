#include <cmath>
#include <limits>

#include "kernels/loops_cpu.h"
#include "kernels/ops_cpu.h"
#include "kernels/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
struct SoftmaxRow {
  float max, sum;  // sum of exp(z - max)
};

// One pass over memory: blocks fit the first cache, and the sum so far is rescaled when a block raises the maximum.
template <class T>
SoftmaxRow softmax_row(const T* z, int64_t V) {
  constexpr int64_t block = 2048;
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (int64_t first = 0; first < V; first += block) {
    const int64_t last = first + block < V ? first + block : V;
    float top = max;
#pragma omp simd reduction(max : top)
    for (int64_t v = first; v < last; v++) top = get(z[v]) > top ? get(z[v]) : top;
    // A row that begins with -inf has nothing to rescale yet, and -inf - -inf would be NaN.
    if (top > max) sum = sum == 0 ? 0 : sum * static_cast<double>(cpu::exp(max - top));
    max = top;
    const float shift = max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t v = first; v < last; v++) part += cpu::exp(get(z[v]) - shift);
    sum += static_cast<double>(part);
  }
  return {max, static_cast<float>(sum)};
}

void check_targets(const char* op, const int32_t* targets, int64_t N, int64_t V) {
  for (int64_t n = 0; n < N; n++)
    CHECK(-1 <= targets[n] && targets[n] < V, "{}: target {} at row {}, but the vocabulary has {}", op, targets[n], n,
          V);
}
}  // namespace

void cross_entropy_forward(Tensor losses_, Tensor logits_, Tensor targets_) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t V = logits_.cols();
  check_targets("cross_entropy_forward", targets, logits_.rows(), V);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = losses_.data<float>();
    const T* logits = logits_.data<T>();
    parallel_for(logits_.rows(), 8 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        losses[n] = 0;
        if (targets[n] < 0) continue;
        const T* z = logits + n * V;
        const SoftmaxRow row = softmax_row(z, V);
        losses[n] = std::log(row.sum) + (row.max - get(z[targets[n]]));
      }
    });
  });
}

void cross_entropy_forward_backward(Tensor losses_, Tensor logits_, Tensor targets_, double scale_) {
  const int32_t* targets = targets_.data<int32_t>();
  const int64_t V = logits_.cols();
  check_targets("cross_entropy_forward_backward", targets, logits_.rows(), V);
  with_compute_type(logits_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    float* losses = losses_.data<float>();
    T* logits = logits_.data<T>();
    const auto scale = static_cast<float>(scale_);
    parallel_for(logits_.rows(), 16 * V, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        T* z = logits + n * V;
        losses[n] = 0;
        if (targets[n] < 0) {
          for (int64_t v = 0; v < V; v++) z[v] = T{};
          continue;
        }
        const SoftmaxRow row = softmax_row(z, V);
        const float target = get(z[targets[n]]);
        losses[n] = std::log(row.sum) + (row.max - target);
        const float factor = scale / row.sum;
#pragma omp simd
        for (int64_t v = 0; v < V; v++) put(z[v], cpu::exp(get(z[v]) - row.max) * factor);
        put(z[targets[n]], (cpu::exp(target - row.max) / row.sum - 1) * scale);
      }
    });
  });
}

}  // namespace megalith::cpu
