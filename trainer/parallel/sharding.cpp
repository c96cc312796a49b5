#include "trainer/parallel/sharding.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace megalith {

Sharding::Sharding(const Plan& plan, Runtime& runtime, bool training) : plan_(plan), runtime_(runtime) {
  for (const UnitPlan& unit : plan.units) units_.emplace_back(unit, plan.compute, training, runtime.memory);
  reduced_before_.assign(units_.size(), false);
  if (!sharded()) return;

  Arena& arena = runtime.memory[MemoryClass::communication];
  const int64_t embedding = plan.units.front().numel, norm = plan.units.back().numel;
  int64_t block = 0;
  for (size_t i = 1; i + 1 < plan.units.size(); i++) block = std::max(block, plan.units[i].numel);
  for (int64_t numel : {embedding, norm, block, block}) {
    weight_slots_.push_back({.memory = arena.tensor(plan.compute, {numel}), .gather = {}});
    if (training)
      gradient_slots_.push_back({.memory = arena.tensor(DType::f32, {numel}),
                                 .partial = arena.tensor(DType::f32, {numel / plan.mesh.shard}),
                                 .scatter = {}});
  }
}

size_t Sharding::first_slot(size_t unit) const {
  if (unit == 0) return 0;
  return unit + 1 == units_.size() ? 1 : 2;
}
size_t Sharding::num_slots(size_t unit) const { return first_slot(unit) == 2 ? 2 : 1; }

Sharding::WeightSlot& Sharding::gathered(size_t unit) {
  const size_t begin = first_slot(unit), end = begin + num_slots(unit);
  WeightSlot* oldest = nullptr;
  for (size_t i = begin; i < end; i++) {
    WeightSlot& slot = weight_slots_[i];
    if (slot.unit == unit) return slot;
    if (slot.users == 0 && (!oldest || slot.last_use < oldest->last_use)) oldest = &slot;
  }
  CHECK(oldest, "no free slot to gather unit {}: too many leases at once", plan_.units[unit].name);
  oldest->gather.wait();
  oldest->unit = unit;
  oldest->last_use = ++clock_;
  oldest->gather =
      runtime_.mesh.channel(Channel::shard)
          .all_gather(runtime_.stream, oldest->memory.flat(0, plan_.units[unit].numel), units_[unit].working());
  return *oldest;
}

void Sharding::prefetch(size_t unit) {
  if (sharded()) gathered(unit);
}

Sharding::Lease Sharding::lease(size_t unit) {
  if (!sharded()) return {views(unit, units_[unit].working()), nullptr};
  WeightSlot& slot = gathered(unit);
  slot.gather.wait();
  slot.last_use = ++clock_;
  return {views(unit, slot.memory), &slot.users};
}

void Sharding::weights_changed() {
  for (WeightSlot& slot : weight_slots_) {
    CHECK(slot.users == 0, "the weights of {} changed while leased", plan_.units[slot.unit].name);
    slot.gather.wait();
    slot.unit = nobody;
  }
}

void Sharding::begin_gradients() {
  std::fill(reduced_before_.begin(), reduced_before_.end(), false);
  if (!sharded())
    for (Unit& unit : units_) fill(runtime_.stream, unit.gradient(), 0);
}

std::vector<Tensor> Sharding::gradients(size_t unit) {
  if (!sharded()) return views(unit, units_[unit].gradient());
  return views(unit, gradient_slot(unit).memory);
}

Sharding::GradientSlot& Sharding::gradient_slot(size_t unit) {
  const size_t begin = first_slot(unit), end = begin + num_slots(unit);
  for (size_t i = begin; i < end; i++)
    if (gradient_slots_[i].unit == unit && !gradient_slots_[i].reducing) return gradient_slots_[i];
  // Blocks take turns, so that one's gradients are scattered while the next one's are computed.
  GradientSlot& slot = gradient_slots_[begin + unit % (end - begin)];
  CHECK(slot.unit == nobody || slot.reducing, "the gradients of {} were not reduced", plan_.units[slot.unit].name);
  complete(slot);
  slot.unit = unit;
  fill(runtime_.stream, slot.memory.flat(0, plan_.units[unit].numel), 0);
  return slot;
}

void Sharding::reduce(size_t unit, bool last_microbatch) {
  if (!sharded()) {
    if (last_microbatch) sum_over_data(unit);
    return;
  }
  GradientSlot& slot = gradient_slot(unit);
  slot.reducing = true;
  slot.last = last_microbatch;
  slot.add = reduced_before_[unit];
  reduced_before_[unit] = true;
  const UnitPlan& plan = plan_.units[unit];
  slot.scatter =
      runtime_.mesh.channel(Channel::shard)
          .reduce_scatter(runtime_.stream, slot.add ? slot.partial.flat(0, plan.shard.size()) : units_[unit].gradient(),
                          slot.memory.flat(0, plan.numel));
}

void Sharding::complete(GradientSlot& slot) {
  if (!slot.reducing) return;
  slot.scatter.wait();
  const Unit& unit = units_[slot.unit];
  if (slot.add) add(runtime_.stream, unit.gradient(), slot.partial.flat(0, unit.plan().shard.size()));
  if (slot.last) sum_over_data(slot.unit);
  slot.reducing = false;
  slot.unit = nobody;
}

void Sharding::sum_over_data(size_t unit) {
  if (plan_.mesh.data == 1) return;
  data_sums_.push_back(
      runtime_.mesh.channel(Channel::data).all_reduce(runtime_.stream, units_[unit].gradient(), Reduce::sum));
}

void Sharding::finish_gradients() {
  for (GradientSlot& slot : gradient_slots_) {
    CHECK(slot.unit == nobody || slot.reducing, "the gradients of {} were not reduced", plan_.units[slot.unit].name);
    complete(slot);
  }
  for (Pending& sum : data_sums_) sum.wait();
  data_sums_.clear();
}

std::vector<Tensor> Sharding::views(size_t unit, Tensor flat) const {
  std::vector<Tensor> tensors;
  for (const PlacedParam& param : plan_.units[unit].params)
    tensors.push_back(flat.flat(param.range().begin, param.range().end).view(param.spec.shape));
  return tensors;
}

}  // namespace megalith
