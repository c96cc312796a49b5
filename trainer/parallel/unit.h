// A Unit is one FSDP unit on one rank: its shard of the flat parameters and of their gradients (ZeRO: Rajbhandari et
// al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277). It owns the views, the arenas own the memory. Padding
// elements stay 0.
#pragma once

#include "trainer/layout/plan.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

// Returns what the rank's shard of the unit holds of a parameter within elements `within` of the unit.
// LocalShard::local counts from the start of the unit's shard.
std::vector<LocalShard> shards_of(const UnitPlan& unit, const TensorRank& tensor, const PlacedParam& param,
                                  Interval within);

class Unit {
 public:
  // Memory only; values come from initialize() or a checkpoint. Without `training` there are no gradients, and nothing
  // may be on the host. A frozen unit has one tensor, in the compute type, as master and working copy, and no
  // gradients. Both plans must outlive it.
  Unit(const UnitPlan& unit, const Plan& plan, bool training, Memory& memory);

  const UnitPlan& plan() const { return *plan_; }
  Tensor master() const { return master_; }  // (S) f32 or bf16: what the optimizer updates and checkpoints keep
  // (S) compute dtype: what is gathered; the master itself, if that is of the same type in the same place.
  Tensor working() const { return working_; }
  bool has_own_working() const { return working_.raw() != master_.raw(); }
  bool working_on_host() const { return working_place_ == MemoryPlace::host; }
  Tensor gradient() const { return gradient_; }  // (S) f32: mean over the batch, once finished; empty: frozen

  // Initial weights: a pure function of the seed, the parameter and the global element.
  void initialize(Stream& s, uint64_t seed);

  // All 0, as padding must be before the rest is read from a checkpoint.
  void clear(Stream& s);

  // To be called after anyone but the optimizer has written the master.
  void round_working(Stream& s);

  std::vector<LocalShard> shards_of(const PlacedParam& param, Interval within) const {
    return megalith::shards_of(*plan_, tensor_, param, within);
  }

 private:
  // Returns the f32 memory in which initial values are made: the master itself or, if it is of another type or on the
  // host, the gradient's memory, which nobody needs outside of a step.
  Tensor initial_values() const;
  void keep(Stream& s, Tensor values);  // which become the master
  // The master on the device: in the gradient's memory, if it is on the host.
  Tensor at_desk() const;
  void set_working(Stream& s);
  // Writes elements of a frozen master, which the host makes in f32: fill(begin, values) for a part from `begin` on.
  template <class Fill>
  void write_frozen(Stream& s, Interval elements, Fill fill);
  void initialize_frozen(Stream& s, uint64_t seed);

  const UnitPlan* plan_;
  TensorRank tensor_;
  MemoryPlace working_place_;
  Tensor master_, working_, gradient_;
};

}  // namespace megalith
