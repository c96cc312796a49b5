#include "trainer/parallel/unit.h"

#include "kernels/elementwise.h"

namespace megalith {

Unit::Unit(const UnitPlan& plan, DType compute, bool training, Memory& memory) : plan_(&plan) {
  const int64_t S = plan.shard.size();
  master_ = memory[MemoryClass::parameters].tensor(DType::f32, {S});
  working_ = compute == DType::f32 ? master_ : memory[MemoryClass::parameters].tensor(compute, {S});
  if (training) gradient_ = memory[MemoryClass::gradients].tensor(DType::f32, {S});
}

Unit::Part Unit::part_of(const PlacedParam& param) const {
  const Interval here = intersect(param.range(), plan_->shard);
  if (here.size() == 0) return {{}, 0};
  return {{here.begin - param.offset, here.end - param.offset}, here.begin - plan_->shard.begin};
}

void Unit::initialize(Stream& s, uint64_t seed) {
  fill(s, master_, 0);
  for (const PlacedParam& param : plan_->params) {
    const Part part = part_of(param);
    if (part.elements.size() == 0) continue;
    const Tensor values = master_.flat(part.offset, part.offset + part.elements.size());
    if (param.spec.init_std > 0)
      normal_fill(s, values, seed, param.spec.id, part.elements.begin, param.spec.init_std);
    else
      fill(s, values, param.spec.init_value);
  }
  round_working(s);
}

void Unit::round_working(Stream& s) {
  if (working_.raw() != master_.raw()) copy(s, working_, master_);
}

}  // namespace megalith
