// AdamW over a flat range of parameters, with decoupled weight decay:
//   g = scale * grad,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//   p = p - lr * decay * p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
// Source: Loshchilov, Hutter, Decoupled Weight Decay Regularization, arXiv 1711.05101.
//
// Whether a step updates at all, and with which scale and t, is decided where the gradient lies, without the host: one
// op decides for all ranges of parameters and leaves its decision in an UpdateState.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace megalith {

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

struct UpdateRules {
  double max_norm = 0;       // larger gradients are scaled down to it; 0: off
  double skip_above = 0;     // times the median of the norms before: such gradients are skipped; 0: off
  int64_t most_skipped = 3;  // in a row: after these every step is skipped
};

enum class Decision {
  update,
  not_finite,  // the loss or the norm
  spike,       // the norm is too large
  over,        // too many steps were skipped before
};

// What a tensor of f64 on the device holds. All 0: before the first update.
struct UpdateState {
  static constexpr int64_t window = 128, enough = 16;  // norms that the median is of: at most, and at least

  // The decision on the step.
  double decision;
  double norm;        // of the gradient
  double median;      // that it was held against; 0: none
  double scale;       // of the gradient: min(1, max_norm / (norm + 1e-6))
  double rate, root;  // AdamW's lr / (1 - b1^t) and 1 / (1 - b2^t)
  // What the next decision depends on.
  double updates;        // made: t above
  double skipped;        // steps in a row
  double num_norms;      // of updates, written below so far
  double norms[window];  // the last of them; number i is at i % window

  static constexpr int64_t numel = 9 + window;
};
static_assert(sizeof(UpdateState) == UpdateState::numel * sizeof(double));

// state (UpdateState::numel) f64; sums (n) f64: square sums of n - 1 parts of the gradient, then the loss. A step that
// is skipped leaves updates and norms as they are.
void decide_update(Stream& s, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);

// master, m, v (n) f32 updated in place; grad (n) f32; state as decide_update left it. working (n) in the compute dtype
// gets the new parameters, rounded; empty when the master itself is what computes. Where the step is skipped nothing is
// written.
void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a);

// What both implementations of decide_update share: the decision, once norm and median are in the state. True: an
// update, whose rates are still to be set.
constexpr bool decide(UpdateState& state, const UpdateRules& rules, double loss) {
  const double norm = state.norm;
  const auto decision = [&] {
    if (state.skipped >= static_cast<double>(rules.most_skipped)) return Decision::over;
    if (!(loss - loss == 0 && norm - norm == 0)) return Decision::not_finite;
    return state.median > 0 && norm > rules.skip_above * state.median ? Decision::spike : Decision::update;
  }();
  state.decision = static_cast<double>(decision);
  if (decision != Decision::update) {
    state.skipped += 1;
    return false;
  }
  const double factor = rules.max_norm / (norm + 1e-6);
  state.scale = rules.max_norm == 0 || factor > 1 ? 1.0 : factor;
  state.norms[static_cast<int64_t>(state.num_norms) % UpdateState::window] = norm;
  state.num_norms += 1;
  state.updates += 1;
  state.skipped = 0;
  return true;
}

// The implementations; arguments are as above and were checked.
namespace cpu {
void decide_update(Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);
void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state, const AdamW& a);
}  // namespace cpu
namespace cuda {
void decide_update(Queue queue, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);
void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a);
}  // namespace cuda

}  // namespace megalith
