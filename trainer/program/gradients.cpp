#include "trainer/program/gradients.h"

#include <algorithm>
#include <utility>

namespace megalith {

Gradients::Gradients(const Plan& plan, Program& list) : plan_(plan), list_(list), own_(plan.num_gradients(), none) {
  int32_t sharing = 0;
  for (size_t u = 0; u < own_.size(); u++) {
    if (!plan.trains(u)) continue;
    if (plan.unit(u).reduce_once || !plan.is_layer(u)) {
      own_[u] = as_number(slots_.size());
      slots_.emplace_back();
    } else {
      sharing++;
    }
  }
  next_ = first_shared_ = slots_.size();
  slots_.resize(slots_.size() + static_cast<size_t>(std::min(sharing, plan.relay ? 3 : 2)));
  if (!sharded())
    for (size_t u = 0; u < own_.size(); u++)
      if (plan.trains(u)) zero(u, none, plan.unit(u).multiplies && (plan.is_layer(u) || is_of_head(u)));
}

// The head comes before the embedding.
bool Gradients::is_of_head(size_t unit) const {
  return std::ranges::find(plan_.head_gradients, unit) != plan_.head_gradients.end();
}

void Gradients::zero(size_t unit, int32_t slot, bool products) {
  list_.push_back({.op = Op::zero, .all = !products, .unit = as_number(unit), .slot = slot});
  if (products) unwritten_.insert(unit);
}

bool Gradients::open(size_t unit, bool products) {
  prepare(unit, products);
  return unwritten_.erase(unit) == 0;
}

void Gradients::prepare(size_t unit, bool products) {
  if (!sharded() || find(unit)) return;
  const size_t slot = own_[unit] != none ? static_cast<size_t>(own_[unit]) : next_;
  if (own_[unit] == none && ++next_ == slots_.size()) next_ = first_shared_;
  collect(slot);
  slots_[slot].unit = as_number(unit);
  zero(unit, as_number(slot), products);
}

void Gradients::reduce(size_t unit, bool last_microbatch) {
  if (!sharded()) {
    if (last_microbatch) sum_copies(unit);
    return;
  }
  if (plan_.unit(unit).reduce_once && !last_microbatch) return;
  relay();
  Slot& slot = *find(unit);
  slot.scattering = true;
  slot.add = !scattered_.insert(unit).second;
  slot.last = last_microbatch;
  list_.push_back({.op = Op::scatter, .add = slot.add, .unit = slot.unit, .slot = as_number(&slot - slots_.data())});
  if (plan_.relay) in_node_ = list_.back();
}

void Gradients::finish() {
  // Shared slots are collected oldest first, because two of them may hold gradients of one unit.
  for (size_t slot = 0; slot < first_shared_; slot++) collect(slot);
  for (size_t slot = next_; slot < slots_.size(); slot++) collect(slot);
  for (size_t slot = first_shared_; slot < next_; slot++) collect(slot);
  await_sums();
  for (size_t u = 0; u < own_.size(); u++) {
    if (!plan_.trains(u) || plan_.unit(u).partial_here().empty()) continue;
    list_.push_back({.op = Op::sum_tensor, .unit = as_number(u)});
    summing_ = true;
  }
  await_sums();
  if (plan_.sums_tied()) list_.push_back({.op = Op::sum_tied});
}

Gradients::Slot* Gradients::find(size_t unit) {
  for (Slot& slot : slots_)
    if (slot.unit == as_number(unit) && !slot.scattering) return &slot;
  return nullptr;
}

void Gradients::relay() {
  if (const auto scattered = std::exchange(in_node_, {}))
    list_.push_back({.op = Op::relay, .unit = scattered->unit, .slot = scattered->slot});
}

void Gradients::collect(size_t s) {
  Slot& slot = slots_[s];
  if (!slot.scattering) return;
  if (in_node_ && in_node_->slot == as_number(s)) relay();
  list_.push_back({.op = Op::collect, .add = slot.add, .unit = slot.unit, .slot = as_number(s)});
  if (slot.last) sum_copies(static_cast<size_t>(slot.unit));
  slot = {};
}

void Gradients::sum_copies(size_t unit) {
  if (plan_.mesh.data == 1) return;
  share_sums();
  list_.push_back({.op = Op::sum_copies, .unit = as_number(unit)});
  if (plan_.reduce_dtype != DType::f32) parted_ = as_number(unit);
  summing_ = true;
}

void Gradients::share_sums() {
  if (const int32_t unit = std::exchange(parted_, none); unit != none)
    list_.push_back({.op = Op::share_sums, .unit = unit});
}

void Gradients::await_sums() {
  share_sums();
  if (std::exchange(summing_, false)) list_.push_back({.op = Op::await_sums});
}

}  // namespace megalith
