#include <algorithm>
#include <initializer_list>
#include <vector>

#include "trainer/program/program.h"

namespace megalith {

Needs needs_of(const Plan& plan, std::initializer_list<const Program*> programs) {
  Needs needs;
  const auto raise = [](int64_t& most, int32_t index) { most = std::max<int64_t>(most, index + 1); };
  // The number of microbatches decides which units use a shared slot, and partly frozen layers differ in size.
  int64_t largest = 0;
  for (const UnitPlan& unit : plan.units)
    if (!unit.keep_gathered) largest = std::max(largest, unit.numel);
  const auto slot = [&](std::vector<Needs::SlotNeed>& slots, const Instruction& i) {
    const auto at = static_cast<size_t>(i.slot);
    if (at >= slots.size()) slots.resize(at + 1);
    const UnitPlan& unit = plan.unit(static_cast<size_t>(i.unit));
    const int64_t numel = i.op == Instruction::Op::gather && !unit.keep_gathered ? largest : unit.numel;
    slots[at].numel = std::max(slots[at].numel, numel);
    slots[at].partial = slots[at].partial || (i.add && plan.reduce_dtype == DType::f32);
  };
  for (const Program* program : programs)
    for (const Instruction& i : *program) {
      for (int32_t residual : {i.x, i.y}) raise(needs.residuals, residual);
      raise(needs.host, i.host);
      for (int32_t saved : {i.saved, i.held}) raise(needs.saved, saved);
      raise(needs.inputs, i.inputs);
      if (i.apart) needs.apart = std::max(needs.apart, plan.units[static_cast<size_t>(i.unit)].size_outside_products());
      raise(needs.batches, i.batch);
      if (i.op == Instruction::Op::gather) slot(needs.weights, i);
      if (i.op == Instruction::Op::send_momentum) raise(needs.rounds_at_once, i.slot);
      if (i.op == Instruction::Op::fetch_state || i.op == Instruction::Op::fetch_momentum) {
        raise(needs.staging, i.slot);
        needs.staging_numel = std::max(needs.staging_numel, i.part.size());
      }
      if ((i.op == Instruction::Op::zero || i.op == Instruction::Op::scatter) && i.slot != Instruction::none)
        slot(needs.gradients, i);
    }
  return needs;
}

}  // namespace megalith
