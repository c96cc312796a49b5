#include "trainer/step/optimizer.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "trainer/step/learning_rate.h"

namespace megalith {

Optimizer::Optimizer(const Config& config, const std::vector<Unit>& units, const Needs& needs, Memory& memory)
    : units_(units),
      rule_(make_update_rule(config)),
      config_(config.optimizer),
      stochastic_(config.precision.stochastic_rounding),
      seed_(static_cast<uint64_t>(config.train.seed)),
      loss_scaling_(update_rules(config).loss_scaling),
      most_skipped_(config.train.max_bad_steps),
      decision_(memory[MemoryClass::optimizer].tensor(DType::f64, {UpdateState::numel})) {
  const DType type = stored_in(config.precision.moments);
  const Unit* on_host = nullptr;
  for (const Unit& unit : units)
    if (unit.plan().optimizer_on_host && !unit.plan().frozen) on_host = &unit;
  for (const char* path : rule_->state_paths()) {
    State state{path, {}};
    for (const Unit& unit : units) {
      const UnitPlan& plan = unit.plan();
      const MemoryPlace place = plan.optimizer_on_host ? MemoryPlace::host : MemoryPlace::device;
      state.by_unit.push_back(plan.frozen ? Tensor{}
                                          : memory.at(MemoryClass::optimizer, place).tensor(type, {plan.shard.size()}));
    }
    state_.push_back(std::move(state));
  }
  const auto take = [&](DType dtype) { return memory[MemoryClass::optimizer].tensor(dtype, {needs.staging_numel}); };
  for (int64_t i = 0; i < needs.staging; i++) {
    Staging buffer{.master = take(on_host->master().dtype()), .state = {}, .working = {}};
    for (size_t k = 0; k < state_.size(); k++) buffer.state.push_back(take(type));
    if (on_host->has_own_working() && on_host->working_on_host()) buffer.working = take(on_host->working().dtype());
    staging_.push_back(std::move(buffer));
  }
}

void Optimizer::initialize(Stream& s) {
  for (const State& state : state_)
    for (size_t i = 0; i < units_.size(); i++) {
      const Tensor& values = state.by_unit[i];
      if (values.empty()) continue;
      const bool on_host = units_[i].plan().optimizer_on_host;
      const Tensor zeros = on_host ? Tensor(units_[i].gradient().raw(), values.dtype(), values.shape()) : values;
      fill(s, zeros, 0);
      if (on_host) s.to_host(values, zeros).wait();
    }
  fill(s, decision_, 0);
  if (const Tensor scale = loss_scale(); !scale.empty()) fill(s, scale, loss_scaling_.initial);
}

Tensor Optimizer::loss_scale() const { return loss_scaling_.initial > 0 ? next_loss_scale_of(decision_) : Tensor{}; }

void Optimizer::decide(Stream& s, int64_t step, Tensor sums) {
  learning_rate_ = learning_rate_at(config_, step);
  rounding_key_ = rounding_key(seed_, step);
  rule_->decide(s, decision_, sums, learning_rate_);
}

void Optimizer::obey(Stream& s, const Instruction& i) {
  const auto slot = static_cast<size_t>(i.slot), u = static_cast<size_t>(i.unit);
  switch (i.op) {
    case Instruction::Op::fetch_state: return fetch(s, i);
    case Instruction::Op::put_state: return put(s, i);
    case Instruction::Op::await_state:
      for (Pending& copy : staging_[slot].copies) copy.wait();
      staging_[slot].copies.clear();
      return;
    case Instruction::Op::update: {
      const Unit& unit = units_[u];
      const auto part = [&](const Tensor& t) { return t.flat(i.part.begin, i.part.end); };
      UpdateRule::Elements all;
      if (i.slot == Instruction::none) {
        all.master = part(unit.master());
        for (const State& state : state_) all.state.push_back(part(state.by_unit[u]));
      } else {
        Staging buffer = front(staging_[slot], i.part.size());
        all.master = buffer.master;
        all.state = std::move(buffer.state);
      }
      if (unit.has_own_working() && !unit.working_on_host()) all.working = part(unit.working());
      all.gradient = part(unit.gradient());
      return update(s, unit, i.part, all);
    }
    default: FAIL("an optimizer is given an instruction {}", static_cast<int>(i.op));
  }
}

void Optimizer::update(Stream& s, const Unit& unit, Interval part, const UpdateRule::Elements& all) const {
  const UnitPlan& plan = unit.plan();
  const int64_t first = plan.shard.begin + part.begin;
  Rounding rounding{.stochastic = stochastic_, .key = rounding_key_};
  const auto update_range = [&](Interval here, bool decay) {
    const auto at = [&](const Tensor& t) { return t.empty() ? t : t.flat(here.begin - first, here.end - first); };
    UpdateRule::Elements e{.master = at(all.master),
                           .state = {},
                           .working = at(all.working),
                           .gradient = at(all.gradient),
                           .decay = decay};
    for (const Tensor& state : all.state) e.state.push_back(at(state));
    rule_->update(s, e, decision_, learning_rate_, rounding);
  };
  const Interval within{first, plan.shard.begin + part.end};
  if (stochastic_) {  // parameter by parameter, since a draw belongs to a place in one
    for (const PlacedParam& param : plan.params)
      for (const auto& [shard, local] : unit.shards_of(param, within)) {
        rounding.stream = param.spec.id;
        rounding.begin = shard.elements.begin;
        rounding.columns = columns_of(shard);
        const int64_t begin = plan.shard.begin + local;
        update_range({begin, begin + shard.numel()}, param.spec.decay);
      }
    return;
  }
  for (bool decay : {true, false}) {
    const Interval range = decay ? Interval{0, plan.decayed} : Interval{plan.decayed, plan.numel};
    if (const Interval here = intersect(range, within); here.size() > 0) update_range(here, decay);
  }
}

// A part lies at the front of its buffer.
Optimizer::Staging Optimizer::front(const Staging& buffer, int64_t numel) const {
  const auto at = [&](const Tensor& t) { return t.empty() ? t : t.flat(0, numel); };
  Staging part{.master = at(buffer.master), .state = {}, .working = at(buffer.working)};
  for (const Tensor& state : buffer.state) part.state.push_back(at(state));
  return part;
}

void Optimizer::fetch(Stream& s, const Instruction& i) {
  const auto u = static_cast<size_t>(i.unit);
  Staging& buffer = staging_[static_cast<size_t>(i.slot)];
  const Staging to = front(buffer, i.part.size());
  const auto from = [&](const Tensor& t) { return t.flat(i.part.begin, i.part.end); };
  buffer.copies.push_back(s.to_device(to.master, from(units_[u].master())));
  for (size_t k = 0; k < state_.size(); k++)
    buffer.copies.push_back(s.to_device(to.state[k], from(state_[k].by_unit[u])));
}

// The working copy is rounded from what the master is now, whether or not it was updated.
void Optimizer::put(Stream& s, const Instruction& i) {
  const auto u = static_cast<size_t>(i.unit);
  Staging& buffer = staging_[static_cast<size_t>(i.slot)];
  const Staging from = front(buffer, i.part.size());
  const auto to = [&](const Tensor& t) { return t.flat(i.part.begin, i.part.end); };
  if (!from.working.empty()) copy(s, from.working, from.master);
  buffer.copies.push_back(s.to_host(to(units_[u].master()), from.master));
  for (size_t k = 0; k < state_.size(); k++)
    buffer.copies.push_back(s.to_host(to(state_[k].by_unit[u]), from.state[k]));
  if (!from.working.empty()) buffer.copies.push_back(s.to_host(to(units_[u].working()), from.working));
}

Optimizer::History Optimizer::history(Stream& s) const {
  UpdateState state{};
  s.download("read_decision", decision_, [&](Tensor host) { std::memcpy(&state, host.raw(), sizeof state); });
  s.synchronize();
  History history{.updates = static_cast<int64_t>(state.updates),
                  .skipped = static_cast<int64_t>(state.skipped),
                  .loss_scale = state.next_loss_scale,
                  .overflows = static_cast<int64_t>(state.overflows),
                  .good_steps = static_cast<int64_t>(state.good_steps)};
  const auto end = static_cast<int64_t>(state.num_norms);
  for (int64_t i = std::max<int64_t>(0, end - UpdateState::window); i < end; i++)
    history.norms.push_back(state.norms[i % UpdateState::window]);
  return history;
}

void Optimizer::restore(Stream& s, const History& history) {
  UpdateState state{};
  state.updates = static_cast<double>(history.updates);
  // One more at least is made or skipped, however many this run allows.
  state.skipped = static_cast<double>(std::min(history.skipped, most_skipped_ - 1));
  state.num_norms = static_cast<double>(history.norms.size());
  if (const LossScaling& scaling = loss_scaling_; scaling.dynamic && history.loss_scale > 0) {
    state.next_loss_scale = std::max(history.loss_scale, scaling.minimum);
    state.overflows = static_cast<double>(history.overflows);
    state.good_steps = static_cast<double>(history.good_steps);
  } else {
    state.next_loss_scale = scaling.initial;
  }
  CHECK(history.norms.size() <= std::size(state.norms), "{} norms are restored, of {} at most", history.norms.size(),
        std::size(state.norms));
  std::copy(history.norms.begin(), history.norms.end(), state.norms);
  s.upload("restore_decision", {decision_},
           [&](std::span<const Tensor> host) { std::memcpy(host[0].raw(), &state, sizeof state); });
}

}  // namespace megalith
