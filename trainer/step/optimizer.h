// The optimizer: AdamW over the shards of all units, and the decision whether a step updates them. Its state is picked
// up by name, so that checkpoints need not know which optimizer wrote it.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/adamw.h"
#include "trainer/parallel/unit.h"

namespace megalith {

class Optimizer {
 public:
  // Moments in the optimizer arena, uninitialised.
  Optimizer(const Config& config, const std::vector<Unit>& units, Memory& memory);

  // As before the first update.
  void initialize(Stream& s);

  // One update of every unit from its finished gradient, or none of any, as decide_update (adamw.h) makes of `sums`,
  // which are those of all ranks. The learning rate is that of `step`, counted from 0.
  void update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor sums);
  // (UpdateState::numel) f64, the same on every rank: what was decided.
  Tensor decision() const { return decision_; }

  // What later decisions depend on.
  struct History {
    int64_t updates = 0;          // made
    int64_t skipped = 0;          // steps in a row
    std::vector<double> norms{};  // of the last updates, the oldest first; UpdateState::window at most
  };
  // Waits for the work launched so far.
  History history(Stream& s) const;
  void restore(Stream& s, const History& history);

  // State tensors by path, one (S) f32 for each unit, laid out as the unit's master.
  struct State {
    std::string path;  // "moments/first"
    std::vector<Tensor> by_unit;
  };
  const std::vector<State>& state() const { return state_; }

 private:
  OptimizerConfig config_;
  UpdateRules rules_;
  std::vector<State> state_;  // first moments, second moments
  Tensor decision_;
};

}  // namespace megalith
