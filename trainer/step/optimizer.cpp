#include "trainer/step/optimizer.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "trainer/layout/matrices.h"
#include "trainer/step/learning_rate.h"

namespace megalith {

Optimizer::Optimizer(const Config& config, const Plan& plan, const std::vector<Unit>& units, const Needs& needs,
                     Memory& memory)
    : plan_(plan),
      units_(units),
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
  for (const UpdateRule::StateKind& kind : rule_->states()) {
    StateTensors state{.path = kind.path, .of_matrices = kind.of_matrices};
    for (const Unit& unit : units) {
      state.elements.push_back(elements_with(kind, unit.plan()));
      state.by_unit.push_back(
          memory.at(MemoryClass::optimizer, unit.plan().optimizer_on_host ? MemoryPlace::host : MemoryPlace::device)
              .tensor(type, {state.elements.back().size()}));
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
  for (const StateTensors& state : state_)
    for (size_t i = 0; i < units_.size(); i++) {
      const Tensor& values = state.by_unit[i];
      if (values.numel() == 0) continue;
      const bool on_host = units_[i].plan().optimizer_on_host;
      const Tensor zeros = on_host ? Tensor(units_[i].gradient().raw(), values.dtype(), values.shape()) : values;
      launch(s, Fill{.y = zeros, .value = 0});
      if (on_host) s.to_host(values, zeros).wait();
    }
  launch(s, Fill{.y = decision_, .value = 0});
  if (const Tensor scale = loss_scale(); !scale.empty()) launch(s, Fill{.y = scale, .value = loss_scaling_.initial});
}

Tensor Optimizer::loss_scale() const { return loss_scaling_.initial > 0 ? next_loss_scale_of(decision_) : Tensor{}; }

void Optimizer::decide(Stream& s, int64_t step, Tensor sums, bool counts) {
  learning_rate_ = learning_rate_at(config_, step);
  muon_learning_rate_ = learning_rate_at(muon_rates(config_), step);
  rounding_key_ = rounding_key(seed_, step);
  rule_->decide(s, decision_, sums, learning_rate_, counts);
}

void Optimizer::obey(Stream& s, const Instruction& i) {
  using Op = Instruction::Op;
  switch (i.op) {
    case Op::fetch_state:
    case Op::fetch_momentum: return fetch(s, i);
    case Op::put_state:
    case Op::put_momentum: return put(s, i);
    case Op::await_state: {
      std::vector<Pending>& copies = staging_[static_cast<size_t>(i.slot)].copies;
      for (Pending& copy : copies) copy.wait();
      copies.clear();
      return;
    }
    case Op::momentum: return momentum(s, part_of(i));
    case Op::update: return update(s, part_of(i));
    default: FAIL("an optimizer is given an instruction {}", static_cast<int>(i.op));
  }
}

Tensor Optimizer::UpdatedPart::Held::at(Interval here) const {
  return tensor.empty() ? tensor : tensor.flat(here.begin - elements.begin, here.end - elements.begin);
}

Interval Optimizer::held(size_t k, const Instruction& i) const {
  const auto u = static_cast<size_t>(i.unit);
  const int64_t first = units_[u].plan().shard.begin;
  return intersect(state_[k].elements[u], {first + i.part.begin, first + i.part.end});
}

Optimizer::UpdatedPart Optimizer::part_of(const Instruction& i) const {
  const auto u = static_cast<size_t>(i.unit);
  const Unit& unit = units_[u];
  const Interval shard = unit.plan().shard, here{shard.begin + i.part.begin, shard.begin + i.part.end};
  UpdatedPart part{.unit = unit,
                   .elements = here,
                   .master = {unit.master(), shard},
                   .working = {},
                   .gradient = {unit.gradient(), shard},
                   .state = {}};
  if (unit.has_own_working() && !unit.working_on_host()) part.working = {unit.working(), shard};
  if (i.slot == Instruction::none) {
    for (const StateTensors& state : state_) part.state.push_back({state.by_unit[u], state.elements[u]});
    return part;
  }
  const Staging& buffer = staging_[static_cast<size_t>(i.slot)];
  part.master = {buffer.master, here};
  for (size_t k = 0; k < state_.size(); k++) part.state.push_back({buffer.state[k], held(k, i)});
  return part;
}

UpdateRule::Elements Optimizer::elements(const UpdatedPart& part, Interval here, bool decay) const {
  UpdateRule::Elements e{.master = part.master.at(here),
                         .state = {},
                         .working = part.working.at(here),
                         .gradient = part.gradient.at(here),
                         .decay = decay};
  return e;
}

template <class Update>
void Optimizer::by_draws(const Unit& unit, const PlacedParam& param, Interval within, Update update) const {
  Rounding rounding{.stochastic = stochastic_, .key = rounding_key_, .stream = param.spec.id};
  const int64_t first = unit.plan().shard.begin;
  for (const auto& [shard, local] : unit.shards_of(param, within)) {
    rounding.begin = shard.elements.begin;
    rounding.columns = columns_of(shard);
    update(Interval{first + local, first + local + shard.numel()}, rounding);
  }
}

void Optimizer::momentum(Stream& s, const UpdatedPart& part) const {
  const UnitPlan& plan = part.unit.plan();
  const auto update_range = [&](Interval here, const Rounding& rounding) {
    for (size_t k = 0; k < state_.size(); k++)
      if (state_[k].of_matrices)
        rule_->momentum(s, part.state[k].at(here), part.gradient.at(here), decision_, rounding);
  };
  const Interval within = intersect(part.elements, plan.matrices);
  if (!stochastic_) return update_range(within, {});
  for (const PlacedParam& param : plan.params) by_draws(part.unit, param, within, update_range);
}

void Optimizer::update_matrices(Stream& s, const UpdatedPart& part) const {
  const UnitPlan& plan = part.unit.plan();
  for (const Matrix& matrix : matrices_of(plan_, static_cast<size_t>(&part.unit - units_.data()))) {
    const PlacedParam& param = plan.params[matrix.param];
    const auto move = [&](Interval here, const Rounding& rounding) {
      rule_->move(s, elements(part, here, param.spec.decay), matrix.rows, matrix.columns, decision_,
                  muon_learning_rate_, rounding);
    };
    const Interval within = intersect(matrix.local, part.elements);
    if (within.size() == 0) continue;
    if (stochastic_)
      by_draws(part.unit, param, within, move);
    else
      move(within, {});
  }
}

void Optimizer::update(Stream& s, const UpdatedPart& part) const {
  const UnitPlan& plan = part.unit.plan();
  if (plan.matrices.size() > 0) update_matrices(s, part);
  const Interval others = intersect(part.elements, {plan.matrices.end, plan.numel});
  const auto update_range = [&](Interval here, bool decay, const Rounding& rounding) {
    UpdateRule::Elements e = elements(part, here, decay);
    for (size_t k = 0; k < state_.size(); k++)
      if (!state_[k].of_matrices) e.state.push_back(part.state[k].at(here));
    rule_->update(s, e, decision_, learning_rate_, rounding);
  };
  if (stochastic_) {  // parameter by parameter, since random words belong to places in one
    for (const PlacedParam& param : plan.params)
      by_draws(part.unit, param, others,
               [&](Interval here, const Rounding& rounding) { update_range(here, param.spec.decay, rounding); });
    return;
  }
  for (bool decay : {true, false}) {
    const Interval range = decay ? Interval{0, plan.decayed} : Interval{plan.decayed, plan.numel};
    if (const Interval here = intersect(range, others); here.size() > 0) update_range(here, decay, {});
  }
}

// A part is at the front of its buffer.
void Optimizer::fetch(Stream& s, const Instruction& i) {
  const auto u = static_cast<size_t>(i.unit);
  Staging& buffer = staging_[static_cast<size_t>(i.slot)];
  const bool momentum = i.op == Instruction::Op::fetch_momentum;
  const auto from_host = [&](const Tensor& to, const Tensor& from) { buffer.copies.push_back(s.to_device(to, from)); };
  if (!momentum) from_host(buffer.master.flat(0, i.part.size()), units_[u].master().flat(i.part.begin, i.part.end));
  for (size_t k = 0; k < state_.size(); k++)
    if (const Interval here = held(k, i); state_[k].of_matrices == momentum && here.size() > 0)
      from_host(buffer.state[k].flat(0, here.size()),
                UpdatedPart::Held{state_[k].by_unit[u], state_[k].elements[u]}.at(here));
}

// The working copy is rounded from the current master, whether or not it was updated.
void Optimizer::put(Stream& s, const Instruction& i) {
  const auto u = static_cast<size_t>(i.unit);
  Staging& buffer = staging_[static_cast<size_t>(i.slot)];
  const bool momentum = i.op == Instruction::Op::put_momentum;
  const auto part = [&](const Tensor& t) { return t.flat(i.part.begin, i.part.end); };
  const auto front = [&](const Tensor& t) { return t.empty() ? t : t.flat(0, i.part.size()); };
  const auto to_host = [&](const Tensor& to, const Tensor& from) { buffer.copies.push_back(s.to_host(to, from)); };
  const Tensor working = momentum ? Tensor{} : front(buffer.working);
  if (!working.empty()) launch(s, Copy{.y = working, .x = front(buffer.master)});
  if (!momentum) to_host(part(units_[u].master()), front(buffer.master));
  for (size_t k = 0; k < state_.size(); k++)
    if (const Interval here = held(k, i); state_[k].of_matrices == momentum && here.size() > 0)
      to_host(UpdatedPart::Held{state_[k].by_unit[u], state_[k].elements[u]}.at(here),
              buffer.state[k].flat(0, here.size()));
  if (!working.empty()) to_host(part(units_[u].working()), working);
}

Optimizer::UpdateCounts Optimizer::update_counts(Stream& s) const {
  UpdateState state{};
  s.download("read_decision", decision_, [&](Tensor host) { std::memcpy(&state, host.raw(), sizeof state); });
  s.synchronize();
  UpdateCounts counts{.updates = static_cast<int64_t>(state.updates),
                      .skipped = static_cast<int64_t>(state.skipped),
                      .loss_scale = state.next_loss_scale,
                      .overflows = static_cast<int64_t>(state.overflows),
                      .good_steps = static_cast<int64_t>(state.good_steps)};
  const auto end = static_cast<int64_t>(state.num_norms);
  for (int64_t i = std::max<int64_t>(0, end - UpdateState::window); i < end; i++)
    counts.norms.push_back(state.norms[i % UpdateState::window]);
  return counts;
}

void Optimizer::restore(Stream& s, const UpdateCounts& counts) {
  UpdateState state{};
  state.updates = static_cast<double>(counts.updates);
  // At least one more update is made or skipped, however many skips this run allows.
  state.skipped = static_cast<double>(std::min(counts.skipped, most_skipped_ - 1));
  state.num_norms = static_cast<double>(counts.norms.size());
  if (const LossScaling& scaling = loss_scaling_; scaling.dynamic && counts.loss_scale > 0) {
    state.next_loss_scale = std::max(counts.loss_scale, scaling.minimum);
    state.overflows = static_cast<double>(counts.overflows);
    state.good_steps = static_cast<double>(counts.good_steps);
  } else {
    state.next_loss_scale = scaling.initial;
  }
  CHECK(counts.norms.size() <= std::size(state.norms), "{} norms are restored, of {} at most", counts.norms.size(),
        std::size(state.norms));
  std::copy(counts.norms.begin(), counts.norms.end(), state.norms);
  s.upload("restore_decision", {decision_},
           [&](std::span<const Tensor> host) { std::memcpy(host[0].raw(), &state, sizeof state); });
}

}  // namespace megalith
