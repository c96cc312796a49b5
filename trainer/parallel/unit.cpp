#include "trainer/parallel/unit.h"

#include "kernels/elementwise.h"

namespace megalith {

Unit::Unit(const UnitPlan& plan, const TensorRank& tensor, DType compute, bool training, Memory& memory)
    : plan_(&plan), tensor_(tensor) {
  const int64_t S = plan.shard.size();
  master_ = memory[MemoryClass::parameters].tensor(DType::f32, {S});
  working_ = compute == DType::f32 ? master_ : memory[MemoryClass::parameters].tensor(compute, {S});
  if (training) gradient_ = memory[MemoryClass::gradients].tensor(DType::f32, {S});
}

std::vector<Strip> Unit::strips_of(const PlacedParam& param, Interval within) const {
  const Interval here = intersect(intersect(param.range(), plan_->shard), within);
  std::vector<Strip> strips =
      megalith::strips_of(param.spec, tensor_, {here.begin - param.offset, here.end - param.offset});
  for (Strip& strip : strips) strip.local += param.offset - plan_->shard.begin;
  return strips;
}

void Unit::clear(Stream& s) { fill(s, master_, 0); }

void Unit::initialize(Stream& s, uint64_t seed) {
  clear(s);
  for (const PlacedParam& param : plan_->params)
    for (const Strip& strip : strips_of(param, {0, plan_->numel})) {
      const Tensor values = master_.flat(strip.local, strip.local + strip.elements.size());
      if (param.spec.init_std > 0)
        normal_fill(s, values, seed, param.spec.id, strip.elements.begin, param.spec.init_std, strip.columns);
      else
        fill(s, values, param.spec.init_value);
    }
  round_working(s);
}

void Unit::round_working(Stream& s) {
  if (working_.raw() != master_.raw()) copy(s, working_, master_);
}

}  // namespace megalith
