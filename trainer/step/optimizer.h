// The optimizer: AdamW over the shards of all units. Its state is picked up by name, so that checkpoints need not know
// which optimizer wrote it.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/parallel/unit.h"

namespace megalith {

class Optimizer {
 public:
  // Moments in the optimizer arena, uninitialised.
  Optimizer(const OptimizerConfig& config, const std::vector<Unit>& units, Memory& memory);

  // As before the first update.
  void initialize(Stream& s);

  // One update of every unit from its finished gradient. `scale` (1) f64 multiplies gradients, on the device; `step`
  // counts from 0.
  void update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor scale);

  // State tensors by path, one (S) f32 for each unit, laid out as the unit's master.
  struct State {
    std::string path;  // "moments/first"
    std::vector<Tensor> by_unit;
  };
  const std::vector<State>& state() const { return state_; }

 private:
  OptimizerConfig config_;
  std::vector<State> state_;  // first moments, second moments
};

}  // namespace megalith
