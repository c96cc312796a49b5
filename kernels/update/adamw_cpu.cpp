// Works in blocks that stay in the first cache: bf16 state is widened into a block, updated there and rounded back.
#include "kernels/update/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/loops/loops_cpu.h"
#include "kernels/update/decide_update.h"

namespace megalith::cpu {

namespace {
constexpr int64_t cached = 512;  // elements in a block

// Returns elements [begin, begin + n) as f32: in place, or converted into `scratch`.
float* widened(const Tensor& t, int64_t begin, int64_t n, float* scratch) {
  if (t.dtype() == DType::f32) return t.data<float>() + begin;
  const bfloat16* from = t.data<bfloat16>() + begin;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) scratch[i] = get(from[i]);
  return scratch;
}

void round_to_nearest(const Tensor& t, int64_t begin, int64_t n, const float* from) {
  with_compute_type(t.dtype(), [&]<class T>(T) {
    T* to = t.data<T>() + begin;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(to[i], from[i]);
  });
}

void update(float* p, float* m, float* v, const float* grad, int64_t n, const UpdateState& state, const AdamW& a) {
  const auto scale = static_cast<float>(state.scale);
  const auto b1 = static_cast<float>(a.beta1), b2 = static_cast<float>(a.beta2);
  const auto c1 = static_cast<float>(1 - a.beta1), c2 = static_cast<float>(1 - a.beta2);
  const auto rate = static_cast<float>(state.rate), root = static_cast<float>(state.root);
  const auto keep = static_cast<float>(1 - a.learning_rate * a.weight_decay);
  const auto epsilon = static_cast<float>(a.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    const float g = scale * grad[i];
    const float mi = b1 * m[i] + c1 * g;
    const float vi = b2 * v[i] + c2 * (g * g);
    p[i] = keep * p[i] - rate * mi / (std::sqrt(vi * root) + epsilon);
    m[i] = mi;
    v[i] = vi;
  }
}

// Rounds bf16 state and replaces `from` by the stored values.
void round_state(std::array<Tensor, 3> state, int64_t begin, int64_t n, std::array<float*, 3> from,
                 const Rounding& rounding) {
  for (size_t k = 0; k < state.size(); k++)
    if (state[k].dtype() == DType::bf16 && !rounding.stochastic) round_to_nearest(state[k], begin, n, from[k]);
  for (int64_t i = 0; rounding.stochastic && i < n; i++) {
    const PhiloxBlock words = rounding.words(begin + i);
    for (size_t k = 0; k < state.size(); k++)
      if (state[k].dtype() == DType::bf16)
        state[k].data<bfloat16>()[begin + i].bits = stochastic_bf16(from[k][i], words[k]);
  }
}
}  // namespace

void run(Queue&, const AdamWUpdate& op) {
  const UpdateState& state = *reinterpret_cast<const UpdateState*>(op.state.data<double>());
  if (state.decision != static_cast<double>(Decision::update)) return;
  parallel_for(op.master.numel(), 4, [&](int64_t first, int64_t end) {
    float scratch[3][cached];
    for (int64_t begin = first; begin < end; begin += cached) {
      const int64_t n = std::min(cached, end - begin);
      float *const p = widened(op.master, begin, n, scratch[0]), *const mi = widened(op.m, begin, n, scratch[1]),
                   *const vi = widened(op.v, begin, n, scratch[2]);
      update(p, mi, vi, op.grad.data<float>() + begin, n, state, op.adamw);
      round_state({op.master, op.m, op.v}, begin, n, {p, mi, vi}, op.rounding);
      if (!op.working.empty()) round_to_nearest(op.working, begin, n, widened(op.master, begin, n, scratch[0]));
    }
  });
}

}  // namespace megalith::cpu
