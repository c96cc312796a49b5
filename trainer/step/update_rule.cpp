#include "trainer/step/update_rule.h"

#include <array>

namespace megalith {

namespace {

LossScaling loss_scaling(const PrecisionConfig& precision) {
  if (precision.compute != ComputeType::fp16) return {};
  if (precision.loss_scale > 0) return {.initial = precision.loss_scale};
  return {.initial = precision.initial_loss_scale,
          .dynamic = true,
          .minimum = precision.minimum_loss_scale,
          .window = precision.loss_scale_window,
          .delayed_shift = precision.delayed_shift};
}

class AdamWRule : public UpdateRule {
 public:
  explicit AdamWRule(const Config& config) : config_(config.optimizer), rules_(update_rules(config)) {}

  std::span<const char* const> state_paths() const override {
    static constexpr std::array<const char*, 2> paths{"moments/first", "moments/second"};
    return paths;
  }

  void decide(Stream& s, Tensor decision, Tensor sums, double learning_rate) const override {
    decide_update(s, decision, sums, rules_, adamw(learning_rate, false));
  }

  void update(Stream& s, const Elements& e, Tensor decision, double learning_rate,
              const Rounding& rounding) const override {
    adamw_update(s, e.master, e.state[0], e.state[1], e.working, e.gradient, decision, adamw(learning_rate, e.decay),
                 rounding);
  }

 private:
  AdamW adamw(double learning_rate, bool decay) const {
    return {.learning_rate = learning_rate,
            .beta1 = config_.beta1,
            .beta2 = config_.beta2,
            .epsilon = config_.epsilon,
            .weight_decay = decay ? config_.weight_decay : 0};
  }

  OptimizerConfig config_;
  UpdateRules rules_;
};

}  // namespace

UpdateRules update_rules(const Config& config) {
  return {.max_norm = config.optimizer.gradient_clip,
          .skip_above = config.train.skip_norm_above,
          .most_skipped = config.train.max_bad_steps,
          .loss_scaling = loss_scaling(config.precision)};
}

std::unique_ptr<UpdateRule> make_update_rule(const Config& config) { return std::make_unique<AdamWRule>(config); }

}  // namespace megalith
