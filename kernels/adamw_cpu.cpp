#include <cmath>

#include "kernels/adamw.h"
#include "kernels/loops_cpu.h"

namespace megalith::cpu {

namespace {
template <bool has_working, class T>
void update(float* p, float* m, float* v, T* working, const float* grad, int64_t n, float scale, const AdamW& a) {
  const auto b1 = static_cast<float>(a.beta1), b2 = static_cast<float>(a.beta2);
  const auto c1 = static_cast<float>(1 - a.beta1), c2 = static_cast<float>(1 - a.beta2);
  const auto t = static_cast<double>(a.update);
  const auto rate = static_cast<float>(a.learning_rate / (1 - std::pow(a.beta1, t)));
  const auto root = static_cast<float>(1 / (1 - std::pow(a.beta2, t)));
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

void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale, const AdamW& a) {
  const auto factor = static_cast<float>(*scale.data<double>());
  float *p = master.data<float>(), *m1 = m.data<float>(), *v1 = v.data<float>();
  const float* g = grad.data<float>();
  if (working.empty()) {
    update<false, float>(p, m1, v1, nullptr, g, master.numel(), factor, a);
    return;
  }
  with_compute_type(working.dtype(), [&](auto tag) {
    using T = decltype(tag);
    update<true, T>(p, m1, v1, working.data<T>(), g, master.numel(), factor, a);
  });
}

}  // namespace megalith::cpu
