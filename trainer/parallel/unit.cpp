#include "trainer/parallel/unit.h"

#include "kernels/elementwise.h"

namespace megalith {

Unit::Unit(const UnitPlan& plan, const TensorRank& tensor, DType compute, Place working, bool training, Memory& memory)
    : plan_(&plan), tensor_(tensor), working_place_(working) {
  CHECK(working == Place::device || (training && plan.optimizer_on_host),
        "{}: weights on the host are rounded from master weights there", plan.name);
  const int64_t S = plan.shard.size();
  const Place place = plan.optimizer_on_host ? Place::host : Place::device;
  master_ = memory.at(MemoryClass::parameters, place).tensor(DType::f32, {S});
  working_ = compute == DType::f32 && working == place
                 ? master_
                 : memory.at(MemoryClass::parameters, working).tensor(compute, {S});
  if (training) gradient_ = memory[MemoryClass::gradients].tensor(DType::f32, {S});
}

std::vector<Strip> Unit::strips_of(const PlacedParam& param, Interval within) const {
  const Interval here = intersect(intersect(param.range(), plan_->shard), within);
  std::vector<Strip> strips =
      megalith::strips_of(param.spec, tensor_, {here.begin - param.offset, here.end - param.offset});
  for (Strip& strip : strips) strip.local += param.offset - plan_->shard.begin;
  return strips;
}

void Unit::clear(Stream& s) {
  fill(s, desk(), 0);
  put_away(s);
}

void Unit::initialize(Stream& s, uint64_t seed) {
  fill(s, desk(), 0);
  for (const PlacedParam& param : plan_->params)
    for (const Strip& strip : strips_of(param, {0, plan_->numel})) {
      const Tensor values = desk().flat(strip.local, strip.local + strip.elements.size());
      if (param.spec.init_std > 0)
        normal_fill(s, values, seed, param.spec.id, strip.elements.begin, param.spec.init_std, strip.columns);
      else
        fill(s, values, param.spec.init_value);
    }
  put_away(s);
  set_working(s);
}

void Unit::round_working(Stream& s) {
  if (plan_->optimizer_on_host) s.to_device(desk(), master_).wait();
  set_working(s);
}

void Unit::put_away(Stream& s) {
  if (plan_->optimizer_on_host) s.to_host(master_, desk()).wait();
}

// From the master's values at the desk, which are used up if the working copy is on the host.
void Unit::set_working(Stream& s) {
  if (!has_own_working()) return;
  if (!working_on_host()) return copy(s, working_, desk());
  const Tensor rounded(desk().raw(), working_.dtype(), working_.shape());
  copy(s, rounded, desk());
  s.to_host(working_, rounded).wait();
}

}  // namespace megalith
