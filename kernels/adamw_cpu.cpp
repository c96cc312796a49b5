#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/adamw.h"
#include "kernels/loops_cpu.h"

namespace megalith::cpu {

namespace {
UpdateState& state_of(const Tensor& t) { return *reinterpret_cast<UpdateState*>(t.data<double>()); }

// 0 where there are not enough.
double median_of_norms(const UpdateState& state) {
  const auto n = std::min(static_cast<int64_t>(state.num_norms), UpdateState::window);
  if (n < UpdateState::enough) return 0;
  std::array<double, UpdateState::window> sorted;
  std::copy_n(state.norms, n, sorted.begin());
  std::sort(sorted.begin(), sorted.begin() + n);
  return (sorted[static_cast<size_t>((n - 1) / 2)] + sorted[static_cast<size_t>(n / 2)]) / 2;
}

template <bool has_working, class T>
void update(float* p, float* m, float* v, T* working, const float* grad, int64_t n, const UpdateState& state,
            const AdamW& a) {
  const auto scale = static_cast<float>(state.scale);
  const auto b1 = static_cast<float>(a.beta1), b2 = static_cast<float>(a.beta2);
  const auto c1 = static_cast<float>(1 - a.beta1), c2 = static_cast<float>(1 - a.beta2);
  const auto rate = static_cast<float>(state.rate), root = static_cast<float>(state.root);
  const auto keep = static_cast<float>(1 - a.learning_rate * a.weight_decay);
  const auto epsilon = static_cast<float>(a.epsilon);
  parallel_for(n, 4, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
      const float g = scale * grad[i];
      const float mi = b1 * m[i] + c1 * g;
      const float vi = b2 * v[i] + c2 * (g * g);
      const float pi = keep * p[i] - rate * mi / (std::sqrt(vi * root) + epsilon);
      m[i] = mi;
      v[i] = vi;
      p[i] = pi;
      if constexpr (has_working) put(working[i], pi);
    }
  });
}
}  // namespace

void decide_update(Tensor state_, Tensor sums, const UpdateRules& rules, const AdamW& a) {
  UpdateState& state = state_of(state_);
  const double* v = sums.data<double>();
  const int64_t parts = sums.numel() - 1;
  double square_sum = 0;
  for (int64_t i = 0; i < parts; i++) square_sum += v[i];
  state.norm = std::sqrt(square_sum);
  state.median = rules.skip_above > 0 ? median_of_norms(state) : 0;
  if (!decide(state, rules, v[parts])) return;
  state.rate = a.learning_rate / (1 - std::pow(a.beta1, state.updates));
  state.root = 1 / (1 - std::pow(a.beta2, state.updates));
}

void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state_, const AdamW& a) {
  const UpdateState& state = state_of(state_);
  if (state.decision != static_cast<double>(Decision::update)) return;
  float *p = master.data<float>(), *m1 = m.data<float>(), *v1 = v.data<float>();
  const float* g = grad.data<float>();
  if (working.empty()) {
    update<false, float>(p, m1, v1, nullptr, g, master.numel(), state, a);
    return;
  }
  with_compute_type(working.dtype(), [&](auto tag) {
    using T = decltype(tag);
    update<true, T>(p, m1, v1, working.data<T>(), g, master.numel(), state, a);
  });
}

}  // namespace megalith::cpu
