// Sharded data parallelism over the units of a model: weights are leased, gradients are reduced.
//
// On the shard axis each rank owns a part of every unit. lease() hands out a whole unit for a scope, gathered over the
// axis; prefetch() starts a gather early so that it runs under compute. A unit that is still in memory since the last
// update is not gathered again. gradients() hands out memory for the gradients of a whole unit, and reduce() adds them
// up over the shard axis into each rank's part; after the last microbatch they are summed over the data axis as well
// (MiCS: Zhang et al., arXiv 2205.00119). On a shard axis of one rank nothing is gathered or copied.
//
// The stages of ZeRO differ in nothing but memory: which units have gathered weights (UnitPlan::keep_gathered) and
// whole gradients (UnitPlan::reduce_once) of their own. The others take turns in a few slots.
//
// All ranks of a mesh make the same calls in the same order.
#pragma once

#include <utility>
#include <vector>

#include "trainer/parallel/unit.h"

namespace megalith {

class Sharding {
 public:
  // `plan` and `runtime` must outlive it. Without `training` only weights exist.
  Sharding(const Plan& plan, Runtime& runtime, bool training);

  std::vector<Unit>& units() { return units_; }
  const std::vector<Unit>& units() const { return units_; }

  class Lease;
  // The unit's weights, until the lease ends.
  [[nodiscard]] Lease lease(size_t unit);
  // Starts the gather of a unit that is about to be leased. Nothing happens where it is here already.
  void prefetch(size_t unit);
  // The weights were updated: what was gathered is stale.
  void weights_changed();

  // A step: begin_gradients; for every microbatch and unit gradients, perhaps again, then reduce; finish_gradients.
  void begin_gradients();
  // The unit's gradients in f32; they accumulate from 0 until they are reduced.
  UnitTensors gradients(size_t unit);
  void reduce(size_t unit, bool last_microbatch);
  // Waits for what reduce() issued, and adds up what several tensor ranks or stages have a share in;
  // Unit::gradient() is then the sum over all ranks and microbatches.
  void finish_gradients();

 private:
  struct WeightSlot {
    Tensor memory;  // compute dtype
    size_t unit = Plan::nowhere;
    int users = 0;
    int64_t last_use = 0;
    Pending gather;
  };
  struct GradientSlot {
    Tensor memory;   // a whole unit, f32
    Tensor partial;  // a shard, f32: the scattered sum before it is added to the unit's gradient
    size_t unit = Plan::nowhere;
    bool reducing = false, add = false, last = false;
    Pending scatter;
  };

  bool sharded() const { return plan_.mesh.shard > 1; }
  Communicator& channel(Channel channel) { return runtime_.mesh.channel(channel); }
  void make_slots(bool training);
  WeightSlot& gathered(size_t unit);
  Pending gather(size_t unit, Tensor whole);
  GradientSlot& gradient_slot(size_t unit);
  void complete(GradientSlot& slot);
  void sum_over_data(size_t unit);
  void sum_unsplit_over_tensor();
  void sum_tied_table();
  UnitTensors views(size_t unit, Tensor flat) const;

  const Plan& plan_;
  Runtime& runtime_;
  std::vector<Unit> units_;
  // Slots of units that have their own, in the order of the units, then the shared ones.
  std::vector<WeightSlot> weight_slots_;
  std::vector<GradientSlot> gradient_slots_;
  std::vector<size_t> own_weights_, own_gradients_;   // by unit: its slot, or nowhere
  size_t shared_weights_ = 0, shared_gradients_ = 0;  // where the shared slots begin
  size_t next_gradient_ = 0;                          // the shared slot whose turn it is
  std::vector<bool> reduced_before_;                  // in this step, by unit
  std::vector<Pending> data_sums_;
  Tensor tied_;  // shard of the token table, f32: what the other end of the pipeline has for it
  int64_t clock_ = 0;
};

// Weights borrowed for a scope.
class Sharding::Lease {
 public:
  Lease(const UnitTensors& tensors, int* users) : tensors_(tensors), users_(users) {
    if (users_) ++*users_;
  }
  ~Lease() {
    if (users_) --*users_;
  }
  Lease(Lease&& other) noexcept : tensors_(other.tensors_), users_(std::exchange(other.users_, nullptr)) {}
  Lease& operator=(Lease&&) = delete;
  const UnitTensors& tensors() const { return tensors_; }

 private:
  UnitTensors tensors_;
  int* users_;
};

}  // namespace megalith
