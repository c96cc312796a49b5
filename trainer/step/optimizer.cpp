#include "trainer/step/optimizer.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "trainer/step/learning_rate.h"

namespace megalith {

namespace {
LossScaling loss_scaling(const PrecisionConfig& precision) {
  if (precision.compute != ComputeType::fp16) return {};
  if (precision.loss_scale > 0) return {.initial = precision.loss_scale};
  return {.initial = precision.initial_loss_scale,
          .dynamic = true,
          .minimum = precision.minimum_loss_scale,
          .window = precision.loss_scale_window,
          .delayed_shift = precision.delayed_shift};
}
}  // namespace

Optimizer::Optimizer(const Config& config, const std::vector<Unit>& units, Memory& memory)
    : config_(config.optimizer),
      stochastic_(config.precision.stochastic_rounding),
      seed_(static_cast<uint64_t>(config.train.seed)),
      rules_{.max_norm = config.optimizer.gradient_clip,
             .skip_above = config.train.skip_norm_above,
             .most_skipped = config.train.max_bad_steps,
             .loss_scaling = loss_scaling(config.precision)},
      decision_(memory[MemoryClass::optimizer].tensor(DType::f64, {UpdateState::numel})) {
  const DType type = stored_in(config.precision.moments);
  const auto place = [](const Unit& unit) { return unit.plan().optimizer_on_host ? Place::host : Place::device; };
  for (const char* path : state_paths) {
    State state{path, {}};
    for (const Unit& unit : units)
      state.by_unit.push_back(memory.at(MemoryClass::optimizer, place(unit)).tensor(type, {unit.plan().shard.size()}));
    state_.push_back(std::move(state));
  }
  make_desks(units, memory);
}

// Desks of the size of a layer: what is larger, such as the token table, passes through in pieces.
void Optimizer::make_desks(const std::vector<Unit>& units, Memory& memory) {
  int64_t layer = 0, largest = 0;
  const Unit* any = nullptr;
  for (const Unit& unit : units) {
    if (!unit.plan().optimizer_on_host) continue;
    any = &unit;
    largest = std::max(largest, unit.plan().shard.size());
    if (unit.plan().is_layer) layer = unit.plan().shard.size();
  }
  const int64_t size = layer > 0 ? layer : largest;
  for (size_t i = 0; i < units.size(); i++)
    for (int64_t at = 0; units[i].plan().optimizer_on_host && at < units[i].plan().shard.size(); at += size)
      pieces_.push_back({i, {at, std::min(at + size, units[i].plan().shard.size())}});
  if (pieces_.empty()) return;
  const DType moments = state_[0].by_unit[0].dtype();
  const auto take = [&](DType type) { return memory[MemoryClass::optimizer].tensor(type, {size}); };
  for (size_t i = 0; i < std::min<size_t>(2, pieces_.size()); i++) {
    Operands operands{take(any->master().dtype()), take(moments), take(moments), {}};
    if (any->has_own_working() && any->working_on_host()) operands.working = take(any->working().dtype());
    desks_.push_back({std::move(operands)});
  }
}

void Optimizer::initialize(Stream& s, const std::vector<Unit>& units) {
  for (const State& state : state_)
    for (size_t i = 0; i < units.size(); i++) {
      const Tensor& moment = state.by_unit[i];
      const bool on_host = units[i].plan().optimizer_on_host;
      const Tensor zeros = on_host ? Tensor(units[i].gradient().raw(), moment.dtype(), moment.shape()) : moment;
      fill(s, zeros, 0);
      if (on_host) s.to_host(moment, zeros).wait();
    }
  fill(s, decision_, 0);
  if (const Tensor scale = loss_scale(); !scale.empty()) fill(s, scale, rules_.loss_scaling.initial);
}

Tensor Optimizer::loss_scale() const {
  return rules_.loss_scaling.initial > 0 ? next_loss_scale_of(decision_) : Tensor{};
}

void Optimizer::update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor sums) {
  const Update with{.adamw = {.learning_rate = learning_rate_at(config_, step),
                              .beta1 = config_.beta1,
                              .beta2 = config_.beta2,
                              .epsilon = config_.epsilon,
                              .weight_decay = 0},
                    .rounding = {.stochastic = stochastic_, .key = rounding_key(seed_, step)}};
  decide_update(s, decision_, sums, rules_, with.adamw);
  if (!pieces_.empty()) fetch(s, units, 0);
  size_t n = 0;  // the next piece
  for (size_t i = 0; i < units.size(); i++) {
    const Unit& unit = units[i];
    if (!unit.plan().optimizer_on_host) {
      const Tensor working = unit.has_own_working() ? unit.working() : Tensor{};
      update(s, unit, {0, unit.plan().shard.size()},
             {unit.master(), state_[0].by_unit[i], state_[1].by_unit[i], working}, with);
    }
    for (; n < pieces_.size() && pieces_[n].unit == i; n++) {
      if (n + 1 < pieces_.size()) fetch(s, units, n + 1);
      update_at_desk(s, unit, n, with);
      put_away(s, unit, n);
    }
  }
  for (Desk& desk : desks_)
    for (Pending& copy : desk.going) copy.wait();
}

void Optimizer::update(Stream& s, const Unit& unit, Interval part, const Operands& operands, Update with) const {
  const UnitPlan& plan = unit.plan();
  const int64_t first = plan.shard.begin + part.begin;
  const auto update_range = [&](Interval here, bool decayed) {
    const auto at = [&](const Tensor& t) { return t.empty() ? t : t.flat(here.begin - first, here.end - first); };
    with.adamw.weight_decay = decayed ? config_.weight_decay : 0;
    adamw_update(s, at(operands.master), at(operands.first), at(operands.second), at(operands.working),
                 at(unit.gradient().flat(part.begin, part.end)), decision_, with.adamw, with.rounding);
  };
  const Interval within{first, plan.shard.begin + part.end};
  if (stochastic_) {  // parameter by parameter, since a draw belongs to a place in one
    for (const PlacedParam& param : plan.params)
      for (const Strip& strip : unit.strips_of(param, within)) {
        with.rounding.stream = param.spec.id;
        with.rounding.begin = strip.elements.begin;
        with.rounding.columns = strip.columns;
        const int64_t begin = plan.shard.begin + strip.local;
        update_range({begin, begin + strip.elements.size()}, param.spec.decay);
      }
    return;
  }
  for (bool decayed : {true, false}) {
    const Interval all = decayed ? Interval{0, plan.decayed} : Interval{plan.decayed, plan.numel};
    if (const Interval here = intersect(all, within); here.size() > 0) update_range(here, decayed);
  }
}

// The piece lies at the front of its desk.
Optimizer::Operands Optimizer::at_desk(size_t piece) const {
  const Operands& whole = desks_[piece % desks_.size()].memory;
  const auto front = [&](const Tensor& t) { return t.empty() ? t : t.flat(0, pieces_[piece].part.size()); };
  return {front(whole.master), front(whole.first), front(whole.second), front(whole.working)};
}

void Optimizer::fetch(Stream& s, const std::vector<Unit>& units, size_t piece) {
  const auto& [unit, part] = pieces_[piece];
  const Operands to = at_desk(piece);
  const auto from = [&](const Tensor& t) { return t.flat(part.begin, part.end); };
  desks_[piece % desks_.size()].coming = {s.to_device(to.master, from(units[unit].master())),
                                          s.to_device(to.first, from(state_[0].by_unit[unit])),
                                          s.to_device(to.second, from(state_[1].by_unit[unit]))};
}

void Optimizer::update_at_desk(Stream& s, const Unit& unit, size_t piece, const Update& with) {
  Desk& desk = desks_[piece % desks_.size()];
  // What was put away is waited for here, and not when its memory is fetched into: copies keep their order.
  for (Pending& copy : desk.going) copy.wait();
  for (Pending& copy : desk.coming) copy.wait();
  const Interval part = pieces_[piece].part;
  Operands operands = at_desk(piece);
  operands.working =
      unit.has_own_working() && !unit.working_on_host() ? unit.working().flat(part.begin, part.end) : Tensor{};
  update(s, unit, part, operands, with);
}

// The working copy is rounded from what the master is now, whether or not it was updated.
void Optimizer::put_away(Stream& s, const Unit& unit, size_t piece) {
  const auto& [i, part] = pieces_[piece];
  const Operands from = at_desk(piece);
  const auto to = [&, begin = part.begin, end = part.end](const Tensor& t) { return t.flat(begin, end); };
  const bool working = !from.working.empty();
  if (working) copy(s, from.working, from.master);
  desks_[piece % desks_.size()].going = {s.to_host(to(unit.master()), from.master),
                                         s.to_host(to(state_[0].by_unit[i]), from.first),
                                         s.to_host(to(state_[1].by_unit[i]), from.second),
                                         working ? s.to_host(to(unit.working()), from.working) : Pending()};
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
  state.skipped = static_cast<double>(std::min(history.skipped, rules_.most_skipped - 1));
  state.num_norms = static_cast<double>(history.norms.size());
  if (const LossScaling& scaling = rules_.loss_scaling; scaling.dynamic && history.loss_scale > 0) {
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
