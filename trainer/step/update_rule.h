// An UpdateRule is what an optimizer does to the elements of a parameter, and the state that it keeps of each. Where
// its state lies, and how it comes to be updated, is the Optimizer's (optimizer.h). AdamW is one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "configs/config.h"
#include "kernels/adamw.h"
#include "kernels/decide_update.h"

namespace megalith {

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Paths of its state in checkpoints; each is a tensor like the master weights, 0 before the first update.
  virtual std::span<const char* const> state_paths() const = 0;

  // decision (UpdateState::numel) f64 written, from the sums of all ranks, as decide_update has it.
  virtual void decide(Stream& s, Tensor decision, Tensor sums, double learning_rate) const = 0;

  // Elements of one parameter or of several: their master weights and state, each (n), updated in place; `working` (n)
  // gets the new weights in the compute type, unless it is empty; gradient (n) f32.
  struct Elements {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working, gradient;
    bool decay = false;
  };
  // Writes nothing if the step was decided to be skipped.
  virtual void update(Stream& s, const Elements& e, Tensor decision, double learning_rate,
                      const Rounding& rounding) const = 0;
};

// Makes the rule that the config names.
std::unique_ptr<UpdateRule> make_update_rule(const Config& config);

// Returns what the decision goes by.
UpdateRules update_rules(const Config& config);

}  // namespace megalith
