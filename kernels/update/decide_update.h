// Decides whether a step updates the weights and how its gradient is scaled, on the device without the host: one op
// decides for all parameters and writes an UpdateState, which the updates (adamw.h) read.
//
// In fp16 the loss is multiplied by a scale, so that small gradients are not rounded to 0. An overflow skips the step
// and lowers the scale; updates without overflow raise it. Source: Micikevicius et al., Mixed Precision Training, arXiv
// 1710.03740; `delayed_shift` is Megatron-LM's --hysteresis.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "kernels/update/adamw.h"

namespace megalith {

struct LossScaling {
  double initial = 0;  // 0: no loss scale
  // If dynamic, the scale halves on each overflow, beginning with the `delayed_shift`-th since it rose, down to
  // `minimum`; it doubles after `window` updates in a row.
  bool dynamic = false;
  double minimum = 1;
  int64_t window = 1000;
  int64_t delayed_shift = 1;
};

struct UpdateRules {
  double max_norm = 0;       // clips to this norm; 0: off
  double skip_above = 0;     // skips gradients above this many times the median of earlier norms; 0: off
  int64_t most_skipped = 3;  // in a row, without overflows; beyond it every step is skipped
  bool counts = true;        // true if any token of the step counts in the loss
  LossScaling loss_scaling{};
};

enum class Decision {
  update,
  not_finite,  // loss or norm
  spike,       // the norm is too large
  over,        // most_skipped is exceeded
  overflow,    // the norm is not finite, and the loss scale may fall
  nothing,     // no token counts, so there is no mean and no gradient
};

// A tensor of f64 on the device. Before the first update all but the loss scale is 0.
struct UpdateState {
  static constexpr int64_t window = 128, enough = 16;  // the most and the fewest norms for a median

  double decision;
  double norm;        // norm of the loss's gradient
  double median;      // the one compared with; 0: no median
  double scale;       // the factor of the summed gradient: min(1, max_norm / (norm + 1e-6)) over the loss scale
  double rate, root;  // AdamW's lr / (1 - b1^t) and 1 / (1 - b2^t)
  double loss_scale;  // this step's
  // The state of the next decision:
  double next_loss_scale;  // multiplies the next step's gradients
  double overflows;        // since the scale rose
  double good_steps;       // since the scale changed or an overflow
  double updates;          // updates made: t above
  double skipped;          // skipped steps in a row
  double num_norms;        // norms of updates so far
  double norms[window];    // the last norms; number i is at i % window

  static constexpr int64_t numel = 13 + window;
};
static_assert(sizeof(UpdateState) == UpdateState::numel * sizeof(double));

// Returns the element by which a step's gradients are multiplied.
inline Tensor next_loss_scale_of(const Tensor& state) { return state.flat(7, 8); }
static_assert(offsetof(UpdateState, next_loss_scale) == 7 * sizeof(double));

// A skipped step changes neither updates nor norms. A step in which no token counts is not among those skipped in a
// row.
struct DecideUpdate {
  static constexpr const char* name = "decide_update";
  Tensor state;  // (UpdateState::numel) f64, in place
  Tensor sums;   // (n) f64: square sums of n - 1 parts of the gradient, then the loss
  UpdateRules rules;
  AdamW adamw;
};

// Makes the decision, once norm and median are in the state; both implementations share it. Returns true for an update,
// whose rates the caller sets.
constexpr bool decide(UpdateState& state, const UpdateRules& rules, double loss) {
  const LossScaling& scaling = rules.loss_scaling;
  const double norm = state.norm;
  const auto finite = [](double v) { return v - v == 0; };
  const auto decision = [&] {
    if (state.skipped >= static_cast<double>(rules.most_skipped)) return Decision::over;
    if (!finite(loss)) return Decision::not_finite;
    if (!finite(norm))
      return scaling.dynamic && state.loss_scale > scaling.minimum ? Decision::overflow : Decision::not_finite;
    if (!rules.counts) return Decision::nothing;
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
  if (decision == Decision::nothing) return false;
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

// Returns the norm of the loss's gradient from the square sum of the scaled one, and sets the step's loss scale.
constexpr double norm_of(UpdateState& state, const UpdateRules& rules, double root_of_square_sum) {
  if (rules.loss_scaling.initial == 0) return root_of_square_sum;
  state.loss_scale = state.next_loss_scale;
  return root_of_square_sum / state.loss_scale;
}

void launch(Stream& s, const DecideUpdate& op);
namespace cpu {
void run(Queue& queue, const DecideUpdate& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const DecideUpdate& op);
}  // namespace cuda

}  // namespace megalith
