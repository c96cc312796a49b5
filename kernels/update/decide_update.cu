// One block makes the decision.
#include "kernels/loops/device_cuda.h"
#include "kernels/update/decide_update.h"

namespace megalith::cuda {

namespace {
constexpr int deciders = 128;  // threads of the block

// Returns the median in every thread, or 0 if there are too few norms. Each thread ranks its norm; equal norms rank by
// index.
static_assert(deciders == UpdateState::window);
__device__ inline double median_of_norms(const UpdateState& state) {
  __shared__ double middle[2];
  const int written = static_cast<int>(state.num_norms < deciders ? state.num_norms : deciders);
  if (written < UpdateState::enough) return 0;
  if (const int i = static_cast<int>(threadIdx.x); i < written) {
    const double mine = state.norms[i];
    int before = 0;
    for (int k = 0; k < written; k++) before += state.norms[k] < mine || (state.norms[k] == mine && k < i);
    if (before == (written - 1) / 2) middle[0] = mine;
    if (before == written / 2) middle[1] = mine;
  }
  sync_threads();
  return (middle[0] + middle[1]) / 2;
}

__global__ void __launch_bounds__(deciders)
    decide_kernel(UpdateState* state, const double* sums, int64_t parts, UpdateRules rules, double learning_rate,
                  double beta1, double beta2) {
  const double median = rules.skip_above > 0 ? median_of_norms(*state) : 0;
  double square_sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += deciders) square_sum += sums[i];
  square_sum = block_sum<deciders>(square_sum);
  if (threadIdx.x != 0) return;
  state->norm = norm_of(*state, rules, sqrt(square_sum));
  state->median = median;
  if (!decide(*state, rules, sums[parts])) return;
  state->rate = learning_rate / (1 - pow(beta1, state->updates));
  state->root = 1 / (1 - pow(beta2, state->updates));
}
}  // namespace

void run(Queue queue, const DecideUpdate& op) {
  launch(queue, {op.name, 1, deciders}, decide_kernel, reinterpret_cast<UpdateState*>(op.state.data<double>()),
         op.sums.data<double>(), op.sums.numel() - 1, op.rules, op.adamw.learning_rate, op.adamw.beta1, op.adamw.beta2);
}

}  // namespace megalith::cuda
