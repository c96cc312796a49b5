// Lists the instructions for the gradients of units in a step: where they are, and when they are scattered, collected
// and summed. Gradients of sharded units are in slots. The ends of the model keep theirs over forward and backward, and
// so do units that are reduced once. The remaining layers share two slots, so that one layer's gradients are scattered
// while the next one's are computed; with relays they share three, so that the one before is in transfer between nodes.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "trainer/program/program.h"

namespace megalith {

class Gradients {
 public:
  // Adds to `list`; both must outlive it.
  Gradients(const Plan& plan, Program& list);

  // These take trained units, or Plan::head_share(). open() is called before an instruction adds to the unit's
  // gradients; `products`: whether products do so in it. Returns how such products must write: add to the gradients, or
  // overwrite memory that was not even zeroed.
  bool open(size_t unit, bool products);
  // As above if products come later: open() then returns how they write.
  void prepare(size_t unit, bool products);
  // Returns whether the unit's gradient is scattered with each microbatch, from a slot of its own.
  bool scatters_each_microbatch(size_t unit) const { return sharded() && !plan_.unit(unit).reduce_once; }
  // The gradients now hold a whole microbatch.
  void reduce(size_t unit, bool last_microbatch);
  // Awaits and sums all transfers.
  void finish();

 private:
  using Op = Instruction::Op;
  static constexpr int32_t none = Instruction::none;
  struct Slot {
    int32_t unit = none;
    bool scattering = false, add = false, last = false;
  };

  bool is_of_head(size_t unit) const;
  void zero(size_t unit, int32_t slot, bool products);
  bool sharded() const { return plan_.mesh.shard > 1; }
  Slot* find(size_t unit);
  // While the next unit computes, scattered gradients are summed inside the node; from then on they are sent to other
  // nodes.
  void relay();
  void collect(size_t slot);
  // In bf16 a unit's parts are in transfer while the next one computes, and its sums from then on.
  void sum_copies(size_t unit);
  void share_sums();
  void await_sums();

  const Plan& plan_;
  Program& list_;
  std::vector<int32_t> own_;  // by unit: its own slot, or none
  std::vector<Slot> slots_;   // the units' own slots, then the shared ones
  size_t first_shared_ = 0, next_ = 0;
  std::set<size_t> scattered_;
  std::set<size_t> unwritten_;          // units whose products have not written their gradients yet
  std::optional<Instruction> in_node_;  // the scatter to be relayed next
  int32_t parted_ = none;               // the unit whose parts are in transfer
  bool summing_ = false;
};

}  // namespace megalith
