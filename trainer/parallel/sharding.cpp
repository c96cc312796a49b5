#include "trainer/parallel/sharding.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"

namespace megalith {

namespace {

// The two halves of f32 memory, as bf16 tensors of as many elements.
Tensor sent_of(const Tensor& gradient) { return {gradient.raw(), DType::bf16, {gradient.numel()}}; }
Tensor received_of(const Tensor& gradient) {
  const int64_t n = gradient.numel();
  return Tensor(gradient.raw(), DType::bf16, {2 * n}).flat(n, 2 * n);
}
Tensor own_part(const Tensor& whole, const Communicator& group) {
  const int64_t each = whole.numel() / group.size();
  return whole.flat(group.rank() * each, (group.rank() + 1) * each);
}
// Returns what each rank of the group has sent, as rows.
Tensor by_rank(const Tensor& parts, const Communicator& group) {
  return parts.view({group.size(), parts.numel() / group.size()});
}

}  // namespace

namespace {
std::vector<Unit> units_of(const Plan& plan, bool training, Memory& memory) {
  std::vector<Unit> units;
  for (const UnitPlan& unit : plan.units) units.emplace_back(unit, plan, training, memory);
  return units;
}
}  // namespace

Sharding::Sharding(const Plan& plan, Runtime& runtime, const Needs& needs, bool training)
    : plan_(plan), runtime_(runtime), units_(units_of(plan, training, runtime.memory)), fp8_(plan, runtime, units_) {
  Arena& arena = runtime.memory[MemoryClass::communication];
  if (training && plan.sums_tied()) tied_ = arena.tensor(DType::f32, {plan.units[plan.tied].shard.size()});
  for (const Needs::SlotNeed& slot : needs.weights)
    weight_slots_.push_back({.memory = arena.tensor(plan.compute, {slot.numel})});
  for (const Needs::SlotNeed& slot : needs.gradients) {
    gradient_slots_.push_back({.memory = arena.tensor(DType::f32, {slot.numel})});
    if (slot.partial) gradient_slots_.back().partial = arena.tensor(DType::f32, {slot.numel / plan.mesh.shard});
  }
}

bool Sharding::has_slots_for(const Needs& needs) const {
  if (needs.weights.size() > weight_slots_.size()) return false;
  for (size_t slot = 0; slot < needs.weights.size(); slot++)
    if (needs.weights[slot].numel > weight_slots_[slot].memory.numel()) return false;
  return true;
}

void Sharding::gather(size_t unit, size_t at, bool fp8) {
  Slot& slot = weight_slots_[at];
  if (slot.unit == unit && slot.fp8 == fp8) return;
  for (Slot& other : weight_slots_)  // still gathered by an earlier program
    if (other.unit == unit) other.unit = Plan::nowhere;
  slot.unit = unit;
  slot.fp8 = fp8;
  const Tensor shard = fp8 ? fp8_.shard(unit) : units_[unit].working();
  slot.gather = begin_gather(unit, Tensor(slot.memory.raw(), shard.dtype(), {plan_.units[unit].numel}), shard);
}

Pending Sharding::begin_gather(size_t unit, Tensor whole, Tensor shard) {
  Stream& s = runtime_.stream;
  Pending fetched;
  if (plan_.parameters_on_host) {
    const Interval mine = plan_.units[unit].shard;
    const Tensor part = whole.flat(mine.begin, mine.end);
    fetched = s.to_device(part, shard);
    if (plan_.mesh.shard == 1) return fetched;
    shard = part;
  }
  if (!plan_.hierarchical) return channel(Channel::shard).all_gather(s, whole, shard, std::move(fetched));
  // The shards of this position on all nodes are neighbours: see mesh.h.
  Communicator& in_node = channel(Channel::in_node);
  const int64_t each = whole.numel() / in_node.size();
  const Tensor of_place = whole.flat(in_node.rank() * each, (in_node.rank() + 1) * each);
  return in_node.all_gather(s, whole, of_place,
                            channel(Channel::between_nodes).all_gather(s, of_place, shard, std::move(fetched)));
}

void Sharding::weights_changed() {
  for (Slot& slot : weight_slots_) {
    slot.gather.wait();
    slot.unit = Plan::nowhere;
  }
}

void Sharding::zero(size_t unit, int32_t at, bool all) {
  if (at != Instruction::none) gradient_slots_[static_cast<size_t>(at)].unit = unit;
  const UnitPlan& plan = plan_.unit(unit);
  const Tensor gradient = whole_gradient(unit);
  if (all) return launch(runtime_.stream, Fill{.y = gradient.flat(0, plan.numel), .value = 0});
  for (const Interval& part : plan.outside_products)
    launch(runtime_.stream, Fill{.y = gradient.flat(part.begin, part.end), .value = 0});
}

Tensor Sharding::target(size_t unit, const Slot& slot, bool add) const {
  return add ? slot.partial.flat(0, plan_.unit(unit).shard.size()) : gradient_of(unit);
}

void Sharding::scatter(size_t unit, size_t at, bool add) {
  Slot& slot = gradient_slots_[at];
  slot.unit = Plan::nowhere;  // the unit may be in another slot before this one is collected
  const Tensor whole = slot.memory.flat(0, plan_.unit(unit).numel);
  slot.scatter = plan_.reduce_dtype == DType::f32
                     ? channel(Channel::shard).reduce_scatter(runtime_.stream, target(unit, slot, add), whole)
                     : send_parts(plan_.relay ? Channel::in_node : Channel::shard, whole);
}

Pending Sharding::send_parts(Channel over, Tensor gradient) {
  launch(runtime_.stream, Copy{.y = sent_of(gradient), .x = gradient});
  return channel(over).all_to_all(runtime_.stream, received_of(gradient), sent_of(gradient));
}

// Shards of one position on all nodes are neighbours: see mesh.h.
void Sharding::relay(size_t unit, size_t at) {
  Slot& slot = gradient_slots_[at];
  slot.scatter.wait();
  const Tensor whole = slot.memory.flat(0, plan_.unit(unit).numel);
  Communicator &in_node = channel(Channel::in_node), &between_nodes = channel(Channel::between_nodes);
  const Tensor received = received_of(whole), sums = sent_of(whole).flat(0, whole.numel() / in_node.size());
  launch(runtime_.stream, SumRows{.y = sums, .x = by_rank(received, in_node), .add = false});
  slot.scatter = between_nodes.all_to_all(runtime_.stream, received.flat(0, sums.numel()), sums);
}

void Sharding::collect(size_t unit, size_t at, bool add) {
  Slot& slot = gradient_slots_[at];
  slot.scatter.wait();
  if (plan_.reduce_dtype != DType::f32) {
    const Tensor gradient = gradient_of(unit), received = received_of(slot.memory.flat(0, plan_.unit(unit).numel));
    const Communicator& from = channel(plan_.relay ? Channel::between_nodes : Channel::shard);
    return launch(
        runtime_.stream,
        SumRows{.y = gradient, .x = by_rank(received.flat(0, from.size() * gradient.numel()), from), .add = add});
  }
  if (add) launch(runtime_.stream, Add{.y = gradient_of(unit), .x = target(unit, slot, add)});
}

void Sharding::sum_copies(size_t unit) {
  const Tensor gradient = gradient_of(unit);
  if (plan_.reduce_dtype == DType::f32)
    sums_.push_back({channel(Channel::data).all_reduce(runtime_.stream, gradient, Reduce::sum)});
  else
    parts_ = send_parts(Channel::data, gradient);
}

// All copies take the sum as it was sent, also the one that has computed it: they must not drift apart.
void Sharding::share_sums(size_t unit) {
  parts_.wait();
  const Tensor gradient = gradient_of(unit), sent = sent_of(gradient);
  Communicator& copies = channel(Channel::data);
  launch(runtime_.stream,
         SumRows{.y = own_part(sent, copies), .x = by_rank(received_of(gradient), copies), .add = false});
  sums_.push_back({copies.all_gather(runtime_.stream, sent, own_part(sent, copies)), gradient});
}

void Sharding::sum_tensor(size_t unit) {
  const UnitPlan& plan = plan_.unit(unit);
  for (const HeldRun& run : plan.partial_here()) {
    const Tensor part =
        gradient_of(unit).flat(run.elements.begin - plan.shard.begin, run.elements.end - plan.shard.begin);
    const Channel over = run.holders == plan_.tensor.degree ? Channel::tensor : Channel::heads;
    sums_.push_back({channel(over).all_reduce(runtime_.stream, part, Reduce::sum)});
  }
}

void Sharding::await_sums() {
  for (Sum& sum : sums_) {
    sum.pending.wait();
    if (!sum.narrow.empty()) launch(runtime_.stream, Copy{.y = sum.narrow, .x = sent_of(sum.narrow)});
  }
  sums_.clear();
}

Tensor Sharding::gradient_of(size_t unit) const { return unit == plan_.head_share() ? tied_ : units_[unit].gradient(); }

// Both ends add the other's share to their own: a sum of two is the same in either order. In a V they are one rank;
// otherwise they are neighbours where the pipeline closes to a ring, so the last stage sends forward.
void Sharding::sum_tied() {
  if (plan_.splits_tied()) return launch(runtime_.stream, Add{.y = gradient_of(plan_.tied), .x = tied_});
  const bool first = plan_.chunks.front().first;
  const int other = first ? plan_.mesh.pipeline - 1 : 0;
  Communicator& out = channel(first ? Channel::backward : Channel::forward);
  Communicator& in = channel(first ? Channel::forward : Channel::backward);
  const Tensor mine = gradient_of(plan_.tied);
  Pending received = in.recv(runtime_.stream, tied_, other), sent = out.send(runtime_.stream, mine, other);
  received.wait();
  sent.wait();
  launch(runtime_.stream, Add{.y = mine, .x = tied_});
}

const Sharding::Slot& Sharding::slot_of(const std::vector<Slot>& slots, size_t unit) const {
  const auto found = std::find_if(slots.begin(), slots.end(), [=](const Slot& slot) { return slot.unit == unit; });
  CHECK(found != slots.end(), "{} is used, but no slot has it", plan_.unit(unit).name);
  return *found;
}

Tensor Sharding::whole_gradient(size_t unit) const {
  return plan_.mesh.shard > 1 ? slot_of(gradient_slots_, unit).memory : gradient_of(unit);
}

UnitTensors Sharding::weights(size_t unit, bool fp8) const {
  UnitTensors tensors;
  add_weights(tensors, unit, fp8);
  if (plan_.unit(unit).frozen_part) add_weights(tensors, *plan_.unit(unit).frozen_part, fp8);
  return tensors;
}

void Sharding::add_weights(UnitTensors& tensors, size_t unit, bool fp8) const {
  const bool cast = fp8 && fp8_.has(unit);
  if (!plan_.gathers())
    return cast ? fp8_.add_views(tensors, unit, fp8_.shard(unit)) : add_views(tensors, unit, units_[unit].working());
  const Slot& slot = slot_of(weight_slots_, unit);
  CHECK(slot.fp8 == cast, "{} is used in {}, but was gathered in {}", plan_.unit(unit).name,
        cast ? "8 bits" : name_of(plan_.compute), slot.fp8 ? "8 bits" : name_of(plan_.compute));
  if (!cast) return add_views(tensors, unit, slot.memory);
  fp8_.add_views(tensors, unit, Tensor(slot.memory.raw(), DType::e4m3, {plan_.unit(unit).numel}));
}

UnitTensors Sharding::gradients(size_t unit) const {
  UnitTensors tensors;
  if (plan_.trains(unit)) add_views(tensors, unit, whole_gradient(unit));
  return tensors;
}

UnitTensors Sharding::gradients_apart(size_t unit, Tensor memory) const {
  UnitTensors tensors;
  int64_t at = 0;
  for (const Interval& part : plan_.unit(unit).outside_products) {
    for (const PlacedParam& param : plan_.unit(unit).params) {
      const Interval range = param.range();
      if (range.begin < part.begin || range.end > part.end) continue;
      const int64_t begin = at + range.begin - part.begin;
      tensors.set(param.index, memory.flat(begin, begin + range.size()).view(param.shape));
    }
    at += part.size();
  }
  return tensors;
}

void Sharding::add_apart(size_t unit, Tensor memory) {
  const Tensor gradient = whole_gradient(unit);
  int64_t at = 0;
  for (const Interval& part : plan_.unit(unit).outside_products) {
    launch(runtime_.stream, Add{.y = gradient.flat(part.begin, part.end), .x = memory.flat(at, at + part.size())});
    at += part.size();
  }
}

std::vector<UnitTensors> Sharding::weights(const std::vector<size_t>& units) const {
  std::vector<UnitTensors> all;
  for (const size_t unit : units) all.push_back(weights(unit));
  return all;
}

std::vector<UnitTensors> Sharding::gradients(const std::vector<size_t>& units) const {
  std::vector<UnitTensors> all;
  for (const size_t unit : units) all.push_back(gradients(unit));
  return all;
}

void Sharding::add_views(UnitTensors& tensors, size_t unit, const Tensor& flat) const {
  for (const PlacedParam& param : plan_.unit(unit).params)
    tensors.set(param.index, flat.flat(param.range().begin, param.range().end).view(param.shape));
}

}  // namespace megalith
