#include "trainer/step/update_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/system/check.h"
#include "kernels/update/muon.h"

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

  std::vector<StateKind> states() const override { return {{"moments/first"}, {"moments/second"}}; }

  void decide(Stream& s, Tensor decision, Tensor sums, double learning_rate, bool counts) const override {
    UpdateRules rules = rules_;
    rules.counts = counts;
    launch(s, DecideUpdate{.state = decision, .sums = sums, .rules = rules, .adamw = adamw(learning_rate, false)});
  }

  void update(Stream& s, const Elements& e, Tensor decision, double learning_rate,
              const Rounding& rounding) const override {
    launch(s, AdamWUpdate{.master = e.master,
                          .m = e.state[0],
                          .v = e.state[1],
                          .working = e.working,
                          .grad = e.gradient,
                          .state = decision,
                          .adamw = adamw(learning_rate, e.decay),
                          .rounding = rounding});
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

class MuonRule : public AdamWRule {
 public:
  explicit MuonRule(const Config& config) : AdamWRule(config), decay_(config.optimizer.weight_decay) {}

  std::vector<StateKind> states() const override {
    std::vector<StateKind> all = AdamWRule::states();
    all.push_back({momentum_path, true});
    return all;
  }
  void momentum(Stream& s, Tensor momentum, Tensor gradient, Tensor decision, const Rounding& rounding) const override {
    launch(s, MuonMomentum{.m = momentum, .grad = gradient, .state = decision, .rounding = rounding});
  }
  void move(Stream& s, const Elements& e, int64_t rows, int64_t columns, Tensor decision, double learning_rate,
            const Rounding& rounding) const override {
    const double size = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    launch(s, MuonUpdate{.master = e.master,
                         .working = e.working,
                         .direction = e.gradient,
                         .state = decision,
                         .muon = {.learning_rate = learning_rate, .weight_decay = e.decay ? decay_ : 0, .size = size},
                         .rounding = rounding});
  }

 private:
  double decay_;
};

}  // namespace

void UpdateRule::momentum(Stream&, Tensor, Tensor, Tensor, const Rounding&) const { FAIL("the rule has no momentum"); }
void UpdateRule::move(Stream&, const Elements&, int64_t, int64_t, Tensor, double, const Rounding&) const {
  FAIL("the rule moves nothing in directions");
}

UpdateRules update_rules(const Config& config) {
  return {.max_norm = config.optimizer.gradient_clip,
          .skip_above = config.train.skip_norm_above,
          .most_skipped = config.train.max_bad_steps,
          .loss_scaling = loss_scaling(config.precision)};
}

Interval elements_with(const UpdateRule::StateKind& state, const UnitPlan& unit) {
  if (unit.frozen) return {};
  const Interval matrices = unit.matrices.size() > 0 ? unit.matrices : Interval{};  // they come first
  return intersect(unit.shard, state.of_matrices ? matrices : Interval{matrices.end, unit.numel});
}

std::unique_ptr<UpdateRule> make_update_rule(const Config& config) {
  if (config.optimizer.algorithm == Algorithm::muon) return std::make_unique<MuonRule>(config);
  return std::make_unique<AdamWRule>(config);
}

}  // namespace megalith
