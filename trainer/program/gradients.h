// Lists what becomes of the gradients of units in a step: where they lie, and when they are scattered, collected and
// summed. Gradients of units that are sharded are in slots: the ends of the model keep theirs over forward and
// backward, and so does what is reduced once; the layers that are left share two, so that one layer's are scattered
// while the next one's are computed, and where they are relayed three, so that the one before is on its way between
// nodes.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "trainer/program/program.h"

namespace megalith {

class Gradients {
 public:
  // Adds to `list` from here on; both must outlive it.
  Gradients(const Plan& plan, Program& list);

  // These are of units that are trained, or of Plan::head_share().
  // The unit's gradients are about to be added to, in an instruction in which products do so or not. Returns what such
  // products have to do: add to what is there, or write what was not even zeroed.
  bool open(size_t unit, bool products);
  // The same where products come later: they are told by open().
  void prepare(size_t unit, bool products);
  // Returns whether the unit's gradient is scattered with each microbatch, in a slot that it has for that alone.
  bool scatters_each_microbatch(size_t unit) const { return sharded() && !plan_.unit(unit).reduce_once; }
  // They hold a microbatch.
  void reduce(size_t unit, bool last_microbatch);
  // All that is on its way arrives and is summed.
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
  // While the next unit is worked on, what was scattered comes together inside the node, and goes to others from then
  // on.
  void relay();
  void collect(size_t slot);
  // In bf16 a unit's parts are under way while the next one is worked on, and its sums from then on.
  void sum_copies(size_t unit);
  void share_sums();
  void await_sums();

  const Plan& plan_;
  Program& list_;
  std::vector<int32_t> own_;  // by unit: its slot, or none
  std::vector<Slot> slots_;   // those of one unit, then the shared ones
  size_t first_shared_ = 0, next_ = 0;
  std::set<size_t> scattered_;
  std::set<size_t> unwritten_;          // units whose products have not written their gradients
  std::optional<Instruction> in_node_;  // the scatter that is to be relayed
  int32_t parted_ = none;               // the unit whose parts are under way
  bool summing_ = false;
};

}  // namespace megalith
