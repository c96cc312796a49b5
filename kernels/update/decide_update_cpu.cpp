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

void run(Queue&, const DecideUpdate& op) {
  UpdateState& state = *reinterpret_cast<UpdateState*>(op.state.data<double>());
  const double* v = op.sums.data<double>();
  const int64_t parts = op.sums.numel() - 1;
  double square_sum = 0;
  for (int64_t i = 0; i < parts; i++) square_sum += v[i];
  state.norm = norm_of(state, op.rules, std::sqrt(square_sum));
  state.median = op.rules.skip_above > 0 ? median_of_norms(state) : 0;
  if (!decide(state, op.rules, v[parts])) return;
  state.rate = op.adamw.learning_rate / (1 - std::pow(op.adamw.beta1, state.updates));
  state.root = 1 / (1 - std::pow(op.adamw.beta2, state.updates));
}

}  // namespace megalith::cpu
