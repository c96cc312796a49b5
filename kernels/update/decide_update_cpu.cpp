#include "kernels/update/decide_update.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace megalith::cpu {

namespace {
// Returns 0 if there are too few norms.
double median_of_norms(const UpdateState& state) {
  const auto n = std::min(static_cast<int64_t>(state.num_norms), UpdateState::window);
  if (n < UpdateState::enough) return 0;
  std::array<double, UpdateState::window> sorted;
  std::copy_n(state.norms, n, sorted.begin());
  std::sort(sorted.begin(), sorted.begin() + n);
  return (sorted[static_cast<size_t>((n - 1) / 2)] + sorted[static_cast<size_t>(n / 2)]) / 2;
}
}  // namespace

void decide_update(Tensor state_, Tensor sums, const UpdateRules& rules, const AdamW& a) {
  UpdateState& state = *reinterpret_cast<UpdateState*>(state_.data<double>());
  const double* v = sums.data<double>();
  const int64_t parts = sums.numel() - 1;
  double square_sum = 0;
  for (int64_t i = 0; i < parts; i++) square_sum += v[i];
  state.norm = norm_of(state, rules, std::sqrt(square_sum));
  state.median = rules.skip_above > 0 ? median_of_norms(state) : 0;
  if (!decide(state, rules, v[parts])) return;
  state.rate = a.learning_rate / (1 - std::pow(a.beta1, state.updates));
  state.root = 1 / (1 - std::pow(a.beta2, state.updates));
}

}  // namespace megalith::cpu
