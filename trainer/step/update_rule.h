// An UpdateRule is what an optimizer does to the elements of a parameter, and the state that it keeps of each. Where
// its state lies, and how it comes to be updated, is the Optimizer's (optimizer.h). AdamW is one. Muon is AdamW with
// another update of the matrices that the plan names (UnitPlan::matrices): momentum, what Directions makes of it
// (directions.h), and a move in that direction.
#pragma once

#include <memory>
#include <vector>

#include "configs/config.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"
#include "trainer/layout/plan.h"

namespace megalith {

// Where checkpoints have Muon's momentum.
inline constexpr const char* momentum_path = "momentum";

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Its state in checkpoints: each path has a tensor for each parameter that its elements belong to, like the master
  // weights and 0 before the first update.
  struct StateKind {
    const char* path;
    bool of_matrices = false;  // of the elements of UnitPlan::matrices; else of all others
  };
  virtual std::vector<StateKind> states() const = 0;

  // decision (UpdateState::numel) f64 written, from the sums of all ranks, as DecideUpdate has it. `counts`: some
  // token of the step counts.
  virtual void decide(Stream& s, Tensor decision, Tensor sums, double learning_rate, bool counts) const = 0;

  // Elements of one parameter or of several, outside of matrices: their master weights and state, each (n), updated in
  // place; `working` (n) gets the new weights in the compute type, unless it is empty; gradient (n) f32.
  struct Elements {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working, gradient;
    bool decay = false;
  };
  // Writes nothing if the step was decided to be skipped.
  virtual void update(Stream& s, const Elements& e, Tensor decision, double learning_rate,
                      const Rounding& rounding) const = 0;

  // Elements of matrices (muon.h): momentum (n) in place, and gradient (n) f32, which becomes what is orthogonalised.
  virtual void momentum(Stream& s, Tensor momentum, Tensor gradient, Tensor decision, const Rounding& rounding) const;
  // Elements of one matrix (rows, columns): e.gradient has their directions; e.state is not used.
  virtual void move(Stream& s, const Elements& e, int64_t rows, int64_t columns, Tensor decision, double learning_rate,
                    const Rounding& rounding) const;
};

// Returns the elements of the unit's shard that have the state; none of what is frozen.
Interval elements_with(const UpdateRule::StateKind& state, const UnitPlan& unit);

// Makes the rule that the config names.
std::unique_ptr<UpdateRule> make_update_rule(const Config& config);

// Returns what the decision goes by.
UpdateRules update_rules(const Config& config);

}  // namespace megalith
