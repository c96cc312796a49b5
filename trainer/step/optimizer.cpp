#include "trainer/step/optimizer.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "trainer/step/learning_rate.h"

namespace megalith {

Optimizer::Optimizer(const Config& config, const std::vector<Unit>& units, Memory& memory)
    : config_(config.optimizer),
      rules_{.max_norm = config.optimizer.gradient_clip,
             .skip_above = config.train.skip_norm_above,
             .most_skipped = config.train.max_bad_steps},
      decision_(memory[MemoryClass::optimizer].tensor(DType::f64, {UpdateState::numel})) {
  const auto place = [](const Unit& unit) { return unit.plan().optimizer_on_host ? Place::host : Place::device; };
  for (const char* path : {"moments/first", "moments/second"}) {
    State state{path, {}};
    for (const Unit& unit : units)
      state.by_unit.push_back(
          memory.at(MemoryClass::optimizer, place(unit)).tensor(DType::f32, {unit.plan().shard.size()}));
    state_.push_back(std::move(state));
  }
  const Unit* largest = nullptr;
  for (const Unit& unit : units)
    if (place(unit) == Place::host && (!largest || unit.plan().shard.size() > largest->plan().shard.size()))
      largest = &unit;
  if (!largest) return;
  const auto take = [&](DType type) { return memory[MemoryClass::optimizer].tensor(type, largest->master().shape()); };
  for (int i = 0; i < 2; i++) {
    Operands operands{take(DType::f32), take(DType::f32), take(DType::f32), {}};
    if (largest->has_own_working() && largest->working_on_host()) operands.working = take(largest->working().dtype());
    desks_.push_back({std::move(operands)});
  }
}

void Optimizer::initialize(Stream& s, const std::vector<Unit>& units) {
  for (const State& state : state_)
    for (size_t i = 0; i < units.size(); i++) {
      const bool on_host = units[i].plan().optimizer_on_host;
      fill(s, on_host ? units[i].gradient() : state.by_unit[i], 0);
      if (on_host) s.to_host(state.by_unit[i], units[i].gradient()).wait();
    }
  fill(s, decision_, 0);
}

void Optimizer::update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor sums) {
  AdamW adamw{.learning_rate = learning_rate_at(config_, step),
              .beta1 = config_.beta1,
              .beta2 = config_.beta2,
              .epsilon = config_.epsilon,
              .weight_decay = 0};
  decide_update(s, decision_, sums, rules_, adamw);
  std::vector<size_t> on_host;
  for (size_t i = 0; i < units.size(); i++)
    if (units[i].plan().optimizer_on_host) on_host.push_back(i);
  if (!on_host.empty()) fetch(s, units, on_host[0], desks_[0]);
  size_t n = 0;  // how many of those on the host were updated
  for (size_t i = 0; i < units.size(); i++) {
    const Unit& unit = units[i];
    if (!unit.plan().optimizer_on_host) {
      const Tensor working = unit.has_own_working() ? unit.working() : Tensor{};
      update(s, unit, {unit.master(), state_[0].by_unit[i], state_[1].by_unit[i], working}, adamw);
      continue;
    }
    Desk& desk = desks_[n % 2];
    if (++n < on_host.size()) fetch(s, units, on_host[n], desks_[n % 2]);
    // What was put away is waited for here, and not when its memory is fetched into: copies keep their order.
    for (Pending& copy : desk.going) copy.wait();
    for (Pending& copy : desk.coming) copy.wait();
    const auto part = [&](const Tensor& t) { return t.flat(0, unit.plan().shard.size()); };
    Operands operands{part(desk.memory.master), part(desk.memory.first), part(desk.memory.second), {}};
    if (unit.has_own_working() && !unit.working_on_host()) operands.working = unit.working();
    update(s, unit, operands, adamw);
    put_away(s, units, i, desk);
  }
  for (Desk& desk : desks_)
    for (Pending& copy : desk.going) copy.wait();
}

void Optimizer::update(Stream& s, const Unit& unit, const Operands& operands, AdamW adamw) const {
  const UnitPlan& plan = unit.plan();
  for (bool decayed : {true, false}) {
    const Interval all = decayed ? Interval{0, plan.decayed} : Interval{plan.decayed, plan.numel};
    const Interval here = intersect(all, plan.shard);
    if (here.size() == 0) continue;
    const int64_t begin = here.begin - plan.shard.begin, end = here.end - plan.shard.begin;
    const auto part = [&](const Tensor& t) { return t.empty() ? t : t.flat(begin, end); };
    adamw.weight_decay = decayed ? config_.weight_decay : 0;
    adamw_update(s, part(operands.master), part(operands.first), part(operands.second), part(operands.working),
                 part(unit.gradient()), decision_, adamw);
  }
}

void Optimizer::fetch(Stream& s, const std::vector<Unit>& units, size_t unit, Desk& desk) const {
  const int64_t S = units[unit].plan().shard.size();
  desk.coming = {s.to_device(desk.memory.master.flat(0, S), units[unit].master()),
                 s.to_device(desk.memory.first.flat(0, S), state_[0].by_unit[unit]),
                 s.to_device(desk.memory.second.flat(0, S), state_[1].by_unit[unit])};
}

// The working copy is rounded from what the master is now, whether or not it was updated.
void Optimizer::put_away(Stream& s, const std::vector<Unit>& units, size_t unit, Desk& desk) const {
  const int64_t S = units[unit].plan().shard.size();
  const Tensor master = desk.memory.master.flat(0, S);
  const bool working = !desk.memory.working.empty();
  if (working) copy(s, desk.memory.working.flat(0, S), master);
  desk.going = {s.to_host(units[unit].master(), master),
                s.to_host(state_[0].by_unit[unit], desk.memory.first.flat(0, S)),
                s.to_host(state_[1].by_unit[unit], desk.memory.second.flat(0, S)),
                working ? s.to_host(units[unit].working(), desk.memory.working.flat(0, S)) : Pending()};
}

Optimizer::History Optimizer::history(Stream& s) const {
  UpdateState state{};
  s.download("read_decision", decision_, [&](Tensor host) { std::memcpy(&state, host.raw(), sizeof state); });
  s.synchronize();
  History history{.updates = static_cast<int64_t>(state.updates), .skipped = static_cast<int64_t>(state.skipped)};
  const auto end = static_cast<int64_t>(state.num_norms);
  for (int64_t i = std::max<int64_t>(0, end - UpdateState::window); i < end; i++)
    history.norms.push_back(state.norms[i % UpdateState::window]);
  return history;
}

void Optimizer::restore(Stream& s, const History& history) {
  UpdateState state{};
  state.updates = static_cast<double>(history.updates);
  // One more at least is made or skipped, however many this run allows.
  state.skipped = static_cast<double>(std::min(history.skipped, rules_.most_skipped - 1));
  state.num_norms = static_cast<double>(history.norms.size());
  CHECK(history.norms.size() <= std::size(state.norms), "{} norms are restored, of {} at most", history.norms.size(),
        std::size(state.norms));
  std::copy(history.norms.begin(), history.norms.end(), state.norms);
  s.upload("restore_decision", {decision_},
           [&](std::span<const Tensor> host) { std::memcpy(host[0].raw(), &state, sizeof state); });
}

}  // namespace megalith
