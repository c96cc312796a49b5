// An UpdateRule defines how an optimizer changes the elements of a parameter, and the state that it keeps for each. The
// Optimizer manages where the state is and when it is updated (optimizer.h). AdamW is one rule. Muon is AdamW with
// another update for the matrices that the plan names (UnitPlan::matrices): momentum, the directions that Directions
// makes of it (directions.h), and a move in that direction.
#pragma once

#include <memory>
#include <vector>

#include "configs/config.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"
#include "trainer/layout/plan.h"

namespace megalith {

// The path of Muon's momentum in checkpoints.
inline constexpr const char* momentum_path = "momentum";

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // A kind of state in checkpoints: each path has a tensor for each parameter of these elements, like the master
  // weights, and 0 before the first update.
  struct StateKind {
    const char* path;
    bool of_matrices = false;  // of the elements of UnitPlan::matrices; else of all others
  };
  virtual std::vector<StateKind> states() const = 0;

  // decision (UpdateState::numel) f64 written, from the sums of all ranks, as by DecideUpdate. `counts`: at least one
  // token of the step counts.
  virtual void decide(Stream& s, Tensor decision, Tensor sums, double learning_rate, bool counts) const = 0;

  // Elements of one or several parameters, outside of matrices: their master weights and state, each (n), updated in
  // place; `working` (n) gets the new weights in the compute type, unless it is empty; gradient (n) f32.
  struct Elements {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working, gradient;
    bool decay = false;
  };
  // Writes nothing if the step is skipped.
  virtual void update(Stream& s, const Elements& e, Tensor decision, double learning_rate,
                      const Rounding& rounding) const = 0;

  // For elements of matrices (muon.h): momentum (n) in place, and gradient (n) f32, which becomes the matrix to
  // orthogonalise.
  virtual void momentum(Stream& s, Tensor momentum, Tensor gradient, Tensor decision, const Rounding& rounding) const;
  // For elements of one matrix (rows, columns): e.gradient has their directions; e.state is not used.
  virtual void move(Stream& s, const Elements& e, int64_t rows, int64_t columns, Tensor decision, double learning_rate,
                    const Rounding& rounding) const;
};

// Returns the elements of the unit's shard that have the state; empty for frozen units.
Interval elements_with(const UpdateRule::StateKind& state, const UnitPlan& unit);

// Makes the rule of the config.
std::unique_ptr<UpdateRule> make_update_rule(const Config& config);

// Returns the settings of the decision.
UpdateRules update_rules(const Config& config);

}  // namespace megalith
