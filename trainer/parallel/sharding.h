// Sharded data parallelism over the units of a model: weights are gathered, gradients are scattered.
//
// On the shard axis each rank owns a shard of every unit. A unit is gathered into a slot of memory before it is used,
// and its whole gradient accumulates in another slot, to be summed over the axis into each rank's shard. After the last
// microbatch the shards are also summed over the data axis (MiCS: Zhang et al., arXiv 2205.00119). With one rank on the
// shard axis nothing is gathered or copied, unless weights wait on the host.
//
// Gradients in bf16 transfers are rounded once on the way to a sum, and summed in f32 by the rank that owns the part:
// each rank sends the others their parts, and adds the parts it receives in the order of the ranks. So a sum over the
// shard axis has the error of one rounding however many ranks there are; a sum over copies is rounded once more, to be
// sent to all of them. The bf16 copy to send takes the first half of the f32 gradient's memory, received parts the
// second. If a shard group has several ranks on each of several nodes, sums inside a node are rounded and relayed to
// the other nodes: two roundings, but each node sends its sum and not each rank's parts.
//
// The stages of ZeRO differ only in memory: which units have slots of their own, and which take turns. The program
// decides this, and makes the calls below (program.h). All ranks of a mesh make them in the same order.
#pragma once

#include <vector>

#include "trainer/parallel/fp8_weights.h"
#include "trainer/program/program.h"

namespace megalith {

class Sharding {
 public:
  // Allocates the slots that `needs` counts. `plan` and `runtime` must outlive it. Without `training` only weights
  // exist.
  Sharding(const Plan& plan, Runtime& runtime, const Needs& needs, bool training);

  // Returns whether there are enough weight slots for another program.
  bool has_slots_for(const Needs& needs) const;

  std::vector<Unit>& units() { return units_; }
  const std::vector<Unit>& units() const { return units_; }

  // These execute the instructions of the same names. A unit that is in its slot since the last update, in the same
  // type, is not gathered again.
  void cast() { fp8_.cast(); }
  void gather(size_t unit, size_t slot, bool fp8 = false);
  void await_gather(size_t slot) { weight_slots_[slot].gather.wait(); }
  void zero(size_t unit, int32_t slot, bool all);
  void scatter(size_t unit, size_t slot, bool add);
  void relay(size_t unit, size_t slot);
  void collect(size_t unit, size_t slot, bool add);
  void sum_copies(size_t unit);
  void share_sums(size_t unit);
  void sum_tensor(size_t unit);
  void await_sums();
  void sum_tied();

  // Return the unit's weights, in the compute dtype, with those of its frozen part; and its gradients, in f32. `fp8`:
  // the weights of products in 8 bits have been cast, where the plan has them so.
  UnitTensors weights(size_t unit, bool fp8 = false) const;
  UnitTensors gradients(size_t unit) const;
  // The gradients of one microbatch that products do not write, in `memory` (UnitPlan::size_outside_products, f32); the
  // second adds them to the unit's gradients.
  UnitTensors gradients_apart(size_t unit, Tensor memory) const;
  void add_apart(size_t unit, Tensor memory);
  std::vector<UnitTensors> weights(const std::vector<size_t>& units) const;
  std::vector<UnitTensors> gradients(const std::vector<size_t>& units) const;

  // Call this after an update of the weights: gathered copies are stale.
  void weights_changed();

 private:
  struct Slot {
    Tensor memory;     // a whole unit
    Tensor partial{};  // of gradients: a shard, the scattered sum before it is added to the unit's gradient
    size_t unit = Plan::nowhere;
    bool fp8 = false;  // it has the unit in e4m3
    Pending gather{}, scatter{};
  };

  // A reduction of gradients. If `narrow`, they are in bf16, in the first half of their memory, until they are awaited.
  struct Sum {
    Pending pending;
    Tensor narrow{};
  };

  Communicator& channel(Channel channel) { return runtime_.mesh.channel(channel); }
  Pending begin_gather(size_t unit, Tensor whole, Tensor shard);
  Pending send_parts(Channel over, Tensor gradient);
  Tensor target(size_t unit, const Slot& slot, bool add) const;
  const Slot& slot_of(const std::vector<Slot>& slots, size_t unit) const;
  Tensor whole_gradient(size_t unit) const;
  Tensor gradient_of(size_t unit) const;  // this rank's shard
  // Sets the tensors of the unit's parameters, by index, to parts of its flat memory.
  void add_views(UnitTensors& tensors, size_t unit, const Tensor& flat) const;
  void add_weights(UnitTensors& tensors, size_t unit, bool fp8) const;

  const Plan& plan_;
  Runtime& runtime_;
  std::vector<Unit> units_;
  Fp8Weights fp8_;
  std::vector<Slot> weight_slots_, gradient_slots_;
  Pending parts_;  // parts of the unit to be shared next
  std::vector<Sum> sums_;
  Tensor
      tied_;  // shard of the tied unit, f32: its gradient from the other end of the pipeline, or in a V from the head
};

}  // namespace megalith
