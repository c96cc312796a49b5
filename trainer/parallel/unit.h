// A Unit is one FSDP unit on one rank: its shard of the flat parameters and of their gradients (ZeRO: Rajbhandari et
// al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277). It owns the views, the arenas own the memory. Padding
// elements stay 0.
#pragma once

#include "trainer/parallel/plan.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

class Unit {
 public:
  // Memory only; values come from initialize() or a checkpoint. Without `training` there are no gradients.
  Unit(const UnitPlan& plan, const TensorRank& tensor, DType compute, bool training, Memory& memory);

  const UnitPlan& plan() const { return *plan_; }
  Tensor master() const { return master_; }      // (S) f32: what the optimizer updates and checkpoints keep
  Tensor working() const { return working_; }    // (S) compute dtype: what is gathered; the master itself in fp32
  Tensor gradient() const { return gradient_; }  // (S) f32: mean over the batch, once finished

  // Initial weights: a pure function of the seed, the parameter and the global element.
  void initialize(Stream& s, uint64_t seed);

  // All 0, as padding must be before the rest is read from a checkpoint.
  void clear(Stream& s);

  // To be called after anyone but the optimizer has written the master.
  void round_working(Stream& s);

  // What this rank's shard holds of a parameter within elements `within` of the unit. Strip::local counts from the
  // start of the shard.
  std::vector<Strip> strips_of(const PlacedParam& param, Interval within) const;

 private:
  const UnitPlan* plan_;
  TensorRank tensor_;
  Tensor master_, working_, gradient_;
};

}  // namespace megalith
