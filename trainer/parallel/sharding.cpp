#include "trainer/parallel/sharding.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace megalith {

Sharding::Sharding(const Plan& plan, Runtime& runtime, bool training) : plan_(plan), runtime_(runtime) {
  for (const UnitPlan& unit : plan.units)
    units_.emplace_back(unit, plan.tensor, plan.compute, training, runtime.memory);
  reduced_before_.assign(units_.size(), false);
  Arena& arena = runtime.memory[MemoryClass::communication];
  if (training && plan.ties_stages()) tied_ = arena.tensor(DType::f32, {plan.units[plan.tokens].shard.size()});
  if (sharded()) make_slots(training);
}

void Sharding::make_slots(bool training) {
  Arena& arena = runtime_.memory[MemoryClass::communication];
  own_weights_.assign(units_.size(), Plan::nowhere);
  own_gradients_.assign(units_.size(), Plan::nowhere);
  const auto add_weights = [&](int64_t numel) {
    weight_slots_.push_back({.memory = arena.tensor(plan_.compute, {numel}), .gather = {}});
  };
  const auto add_gradients = [&](int64_t numel, bool once) {
    gradient_slots_.push_back({.memory = arena.tensor(DType::f32, {numel}),
                               .partial = once ? Tensor{} : arena.tensor(DType::f32, {numel / plan_.mesh.shard}),
                               .scatter = {}});
  };

  int64_t sharing_weights = 0, sharing_gradients = 0, largest_weights = 0, largest_gradients = 0;
  for (size_t u = 0; u < units_.size(); u++) {
    const UnitPlan& unit = plan_.units[u];
    if (unit.keep_gathered) {
      own_weights_[u] = weight_slots_.size();
      add_weights(unit.numel);
    } else {
      sharing_weights++;
      largest_weights = std::max(largest_weights, unit.numel);
    }
    if (!training) continue;
    // The ends of the model keep theirs over forward and backward.
    if (unit.reduce_once || unit.role != UnitRole::layer) {
      own_gradients_[u] = gradient_slots_.size();
      add_gradients(unit.numel, unit.reduce_once);
    } else {
      sharing_gradients++;
      largest_gradients = std::max(largest_gradients, unit.numel);
    }
  }
  shared_weights_ = weight_slots_.size();
  for (int64_t i = 0; i < std::min(sharing_weights, plan_.live_units); i++) add_weights(largest_weights);
  next_gradient_ = shared_gradients_ = gradient_slots_.size();
  // Two, so that one layer's gradients are scattered while the next one's are computed.
  for (int64_t i = 0; i < std::min<int64_t>(sharing_gradients, 2); i++) add_gradients(largest_gradients, false);
}

Sharding::WeightSlot& Sharding::gathered(size_t unit) {
  WeightSlot* slot = nullptr;
  if (own_weights_[unit] != Plan::nowhere) {
    slot = &weight_slots_[own_weights_[unit]];
    if (slot->unit == unit) return *slot;
  } else {
    for (size_t i = shared_weights_; i < weight_slots_.size(); i++) {
      WeightSlot& candidate = weight_slots_[i];
      if (candidate.unit == unit) return candidate;
      if (candidate.users == 0 && (!slot || candidate.last_use < slot->last_use)) slot = &candidate;
    }
    CHECK(slot, "no free slot to gather {}: too many leases at once", plan_.units[unit].name);
  }
  slot->gather.wait();
  slot->unit = unit;
  slot->last_use = ++clock_;
  slot->gather = gather(unit, slot->memory.flat(0, plan_.units[unit].numel));
  return *slot;
}

Pending Sharding::gather(size_t unit, Tensor whole) {
  const Tensor shard = units_[unit].working();
  Stream& s = runtime_.stream;
  if (!plan_.hierarchical) return channel(Channel::shard).all_gather(s, whole, shard);
  // The parts at this place of every node lie side by side: see mesh.h.
  Communicator& in_node = channel(Channel::in_node);
  const int64_t each = whole.numel() / in_node.size();
  const Tensor of_place = whole.flat(in_node.rank() * each, (in_node.rank() + 1) * each);
  return in_node.all_gather(s, whole, of_place, channel(Channel::between_nodes).all_gather(s, of_place, shard));
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
    slot.unit = Plan::nowhere;
  }
}

void Sharding::begin_gradients() {
  std::fill(reduced_before_.begin(), reduced_before_.end(), false);
  next_gradient_ = shared_gradients_;  // so that every step makes the same calls in the same order
  if (!sharded())
    for (Unit& unit : units_) fill(runtime_.stream, unit.gradient(), 0);
}

UnitTensors Sharding::gradients(size_t unit) {
  if (!sharded()) return views(unit, units_[unit].gradient());
  return views(unit, gradient_slot(unit).memory);
}

Sharding::GradientSlot& Sharding::gradient_slot(size_t unit) {
  GradientSlot* slot = nullptr;
  if (own_gradients_[unit] != Plan::nowhere) {
    slot = &gradient_slots_[own_gradients_[unit]];
    if (slot->unit == unit && !slot->reducing) return *slot;
  } else {
    for (size_t i = shared_gradients_; i < gradient_slots_.size(); i++)
      if (gradient_slots_[i].unit == unit && !gradient_slots_[i].reducing) return gradient_slots_[i];
    slot = &gradient_slots_[next_gradient_];
    if (++next_gradient_ == gradient_slots_.size()) next_gradient_ = shared_gradients_;
  }
  CHECK(slot->unit == Plan::nowhere || slot->reducing, "the gradients of {} were not reduced",
        plan_.units[slot->unit].name);
  complete(*slot);
  slot->unit = unit;
  fill(runtime_.stream, slot->memory.flat(0, plan_.units[unit].numel), 0);
  return *slot;
}

void Sharding::reduce(size_t unit, bool last_microbatch) {
  if (!sharded()) {
    if (last_microbatch) sum_over_data(unit);
    return;
  }
  const UnitPlan& plan = plan_.units[unit];
  if (plan.reduce_once && !last_microbatch) return;
  GradientSlot& slot = gradient_slot(unit);
  slot.reducing = true;
  slot.last = last_microbatch;
  slot.add = reduced_before_[unit];
  reduced_before_[unit] = true;
  slot.scatter =
      channel(Channel::shard)
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
  slot.unit = Plan::nowhere;
}

void Sharding::sum_over_data(size_t unit) {
  if (plan_.mesh.data == 1) return;
  data_sums_.push_back(channel(Channel::data).all_reduce(runtime_.stream, units_[unit].gradient(), Reduce::sum));
}

void Sharding::finish_gradients() {
  for (GradientSlot& slot : gradient_slots_) {
    CHECK(slot.unit == Plan::nowhere || slot.reducing, "the gradients of {} were not reduced",
          plan_.units[slot.unit].name);
    complete(slot);
  }
  for (Pending& sum : data_sums_) sum.wait();
  data_sums_.clear();
  sum_unsplit_over_tensor();
  if (plan_.ties_stages()) sum_tied_table();
}

void Sharding::sum_unsplit_over_tensor() {
  std::vector<Pending> sums;
  for (const Unit& unit : units_) {
    const UnitPlan& plan = unit.plan();
    const Interval here = intersect({plan.split, plan.numel}, plan.shard);
    if (!plan.sum_unsplit || here.size() == 0) continue;
    const Tensor part = unit.gradient().flat(here.begin - plan.shard.begin, here.end - plan.shard.begin);
    sums.push_back(channel(Channel::tensor).all_reduce(runtime_.stream, part, Reduce::sum));
  }
  for (Pending& sum : sums) sum.wait();
}

// Both ends add the other's share to their own: a sum of two is the same in either order. They are neighbours where
// the pipeline closes to a ring, so what the last sends goes forward.
void Sharding::sum_tied_table() {
  const bool first = plan_.chunks.front().first;
  const int other = first ? plan_.mesh.pipeline - 1 : 0;
  Communicator& out = channel(first ? Channel::backward : Channel::forward);
  Communicator& in = channel(first ? Channel::forward : Channel::backward);
  const Tensor mine = units_[plan_.tokens].gradient();
  Pending received = in.recv(runtime_.stream, tied_, other), sent = out.send(runtime_.stream, mine, other);
  received.wait();
  sent.wait();
  add(runtime_.stream, mine, tied_);
}

UnitTensors Sharding::views(size_t unit, Tensor flat) const {
  UnitTensors tensors;
  for (const PlacedParam& param : plan_.units[unit].params)
    tensors.*param.spec.member = flat.flat(param.range().begin, param.range().end).view(param.shape);
  return tensors;
}

}  // namespace megalith
