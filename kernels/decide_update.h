// The decision whether a step updates the weights, and how far its gradient is scaled. It is made where the gradient
// lies, without the host: one op decides for all ranges of parameters and leaves its decision in an UpdateState, which
// the updates (adamw.h) read.
//
// In fp16 gradients are those of the loss times a scale, so that small ones are not rounded to 0 on their way back.
// Where they overflow the step is skipped, and the scale falls; after a while without, it rises. Source: Micikevicius
// et al., Mixed Precision Training, arXiv 1710.03740; `delayed_shift` as in Megatron-LM, where it is --hysteresis.
#pragma once

#include "kernels/adamw.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace megalith {

struct LossScaling {
  double initial = 0;  // 0: gradients are those of the loss itself
  // Else it halves on each overflow from the `delayed_shift`-th on since it rose, down to `minimum`, and doubles after
  // `window` updates in a row.
  bool dynamic = false;
  double minimum = 1;
  int64_t window = 1000;
  int64_t delayed_shift = 1;
};

struct UpdateRules {
  double max_norm = 0;       // larger gradients are scaled down to it; 0: off
  double skip_above = 0;     // times the median of the norms before: such gradients are skipped; 0: off
  int64_t most_skipped = 3;  // in a row, overflows apart: after these every step is skipped
  LossScaling loss_scaling{};
};

enum class Decision {
  update,
  not_finite,  // the loss or the norm
  spike,       // the norm is too large
  over,        // too many steps were skipped before
  overflow,    // the norm is not finite, and the loss scale may fall
};

// What a tensor of f64 on the device holds. All 0: before the first update, but for the loss scale.
struct UpdateState {
  static constexpr int64_t window = 128, enough = 16;  // norms that the median is of: at most, and at least

  // The decision on the step.
  double decision;
  double norm;        // of the gradient of the loss
  double median;      // that it was held against; 0: none
  double scale;       // of what was summed up: min(1, max_norm / (norm + 1e-6)), over the loss scale
  double rate, root;  // AdamW's lr / (1 - b1^t) and 1 / (1 - b2^t)
  double loss_scale;  // of the step
  // What the next decision depends on.
  double next_loss_scale;  // which the next step multiplies its gradients by
  double overflows;        // since it rose
  double good_steps;       // updates since it changed or an overflow
  double updates;          // made: t above
  double skipped;          // steps in a row
  double num_norms;        // of updates, written below so far
  double norms[window];    // the last of them; number i is at i % window

  static constexpr int64_t numel = 13 + window;
};
static_assert(sizeof(UpdateState) == UpdateState::numel * sizeof(double));

// The element of a state that a step's gradients are multiplied by.
inline Tensor next_loss_scale_of(const Tensor& state) { return state.flat(7, 8); }
static_assert(offsetof(UpdateState, next_loss_scale) == 7 * sizeof(double));

// state (UpdateState::numel) f64; sums (n) f64: square sums of n - 1 parts of the gradient, then the loss. A step that
// is skipped leaves updates and norms as they are.
void decide_update(Stream& s, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);

// What both implementations share: the decision, once norm and median are in the state. True: an update, whose rates
// are still to be set.
constexpr bool decide(UpdateState& state, const UpdateRules& rules, double loss) {
  const LossScaling& scaling = rules.loss_scaling;
  const double norm = state.norm;
  const auto finite = [](double v) { return v - v == 0; };
  const auto decision = [&] {
    if (state.skipped >= static_cast<double>(rules.most_skipped)) return Decision::over;
    if (!finite(loss)) return Decision::not_finite;
    if (!finite(norm))
      return scaling.dynamic && state.loss_scale > scaling.minimum ? Decision::overflow : Decision::not_finite;
    return state.median > 0 && norm > rules.skip_above * state.median ? Decision::spike : Decision::update;
  }();
  state.decision = static_cast<double>(decision);
  if (decision == Decision::overflow) {
    state.good_steps = 0;
    state.overflows += 1;
    if (state.overflows >= static_cast<double>(scaling.delayed_shift))
      state.next_loss_scale = state.loss_scale / 2 > scaling.minimum ? state.loss_scale / 2 : scaling.minimum;
    return false;
  }
  if (decision != Decision::update) {
    state.skipped += 1;
    return false;
  }
  const double factor = rules.max_norm / (norm + 1e-6);
  state.scale = rules.max_norm == 0 || factor > 1 ? 1.0 : factor;
  if (scaling.initial > 0) state.scale /= state.loss_scale;
  if (scaling.dynamic) state.good_steps += 1;
  if (scaling.dynamic && state.good_steps >= static_cast<double>(scaling.window)) {
    state.next_loss_scale = 2 * state.loss_scale;
    state.overflows = 0;
    state.good_steps = 0;
  }
  state.norms[static_cast<int64_t>(state.num_norms) % UpdateState::window] = norm;
  state.num_norms += 1;
  state.updates += 1;
  state.skipped = 0;
  return true;
}

// The norm of the gradient of the loss, from the square sum of what was added up. The step's loss scale is then known.
constexpr double norm_of(UpdateState& state, const UpdateRules& rules, double root_of_square_sum) {
  if (rules.loss_scaling.initial == 0) return root_of_square_sum;
  state.loss_scale = state.next_loss_scale;
  return root_of_square_sum / state.loss_scale;
}

// The implementations; arguments are as above and were checked.
namespace cpu {
void decide_update(Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);
}  // namespace cpu
namespace cuda {
void decide_update(Queue queue, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a);
}  // namespace cuda

}  // namespace megalith
