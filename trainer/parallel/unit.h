// A Unit is one FSDP unit on one rank: its shard of the flat parameters and of their gradients (ZeRO: Rajbhandari et
// al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277). It owns the views, the arenas own the memory. Padding
// elements stay 0.
#pragma once

#include "trainer/layout/plan.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

// Returns the parts of a parameter in the rank's shard of the unit, within elements `within` of the unit.
// LocalShard::local counts from the start of the unit's shard.
std::vector<LocalShard> shards_of(const UnitPlan& unit, const TensorRank& tensor, const PlacedParam& param,
                                  Interval within);

class Unit {
 public:
  // Allocates memory only; values come from initialize() or a checkpoint. Without `training` there are no gradients,
  // and nothing may be on the host. A frozen unit has one tensor, in the compute type, as master and working copy, and
  // no gradients. Both plans must outlive it.
  Unit(const UnitPlan& unit, const Plan& plan, bool training, Memory& memory);

  const UnitPlan& plan() const { return *plan_; }
  Tensor master() const { return master_; }  // (S) f32 or bf16: updated by the optimizer, saved in checkpoints
  // (S) compute dtype: the gathered weights; the master itself, if it has the same type and place.
  Tensor working() const { return working_; }
  bool has_own_working() const { return working_.raw() != master_.raw(); }
  bool working_on_host() const { return working_place_ == MemoryPlace::host; }
  Tensor gradient() const { return gradient_; }  // (S) f32: mean over the batch, once finished; empty: frozen

  // Sets initial weights: a pure function of the seed, the parameter and the global element.
  void initialize(Stream& s, uint64_t seed);

  // Sets all elements to 0, as padding must be before the others are read from a checkpoint.
  void clear(Stream& s);

  // Call this after any code other than the optimizer has written the master.
  void round_working(Stream& s);

  std::vector<LocalShard> shards_of(const PlacedParam& param, Interval within) const {
    return megalith::shards_of(*plan_, tensor_, param, within);
  }

 private:
  // Returns the f32 memory for initial values: the master itself or, if it has another type or is on the host, the
  // gradient's memory, which is free outside of a step.
  Tensor initial_values() const;
  void keep(Stream& s, Tensor values);  // makes values the master
  // Returns the master on the device: in the gradient's memory, if it is on the host.
  Tensor at_desk() const;
  void set_working(Stream& s);
  // Writes elements of a frozen master, which the host computes in f32: fill(begin, values) for the part that starts at
  // `begin`.
  template <class Fill>
  void write_frozen(Stream& s, Interval elements, Fill fill);
  void initialize_frozen(Stream& s, uint64_t seed);

  const UnitPlan* plan_;
  TensorRank tensor_;
  MemoryPlace working_place_;
  Tensor master_, working_, gradient_;
};

}  // namespace megalith
