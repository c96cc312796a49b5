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
  for (const char* path : {"moments/first", "moments/second"}) {
    State state{path, {}};
    for (const Unit& unit : units)
      state.by_unit.push_back(memory[MemoryClass::optimizer].tensor(DType::f32, {unit.plan().shard.size()}));
    state_.push_back(std::move(state));
  }
}

void Optimizer::initialize(Stream& s) {
  for (const State& state : state_)
    for (const Tensor& t : state.by_unit) fill(s, t, 0);
  fill(s, decision_, 0);
}

void Optimizer::update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor sums) {
  AdamW adamw{.learning_rate = learning_rate_at(config_, step),
              .beta1 = config_.beta1,
              .beta2 = config_.beta2,
              .epsilon = config_.epsilon,
              .weight_decay = 0};
  decide_update(s, decision_, sums, rules_, adamw);
  for (size_t i = 0; i < units.size(); i++) {
    const Unit& unit = units[i];
    const UnitPlan& plan = unit.plan();
    for (bool decayed : {true, false}) {
      const Interval all = decayed ? Interval{0, plan.decayed} : Interval{plan.decayed, plan.numel};
      const Interval here = intersect(all, plan.shard);
      if (here.size() == 0) continue;
      const int64_t begin = here.begin - plan.shard.begin, end = here.end - plan.shard.begin;
      auto part = [&](const Tensor& t) { return t.flat(begin, end); };
      const bool rounds = unit.working().raw() != unit.master().raw();
      adamw.weight_decay = decayed ? config_.weight_decay : 0;
      adamw_update(s, part(unit.master()), part(state_[0].by_unit[i]), part(state_[1].by_unit[i]),
                   rounds ? part(unit.working()) : Tensor{}, part(unit.gradient()), decision_, adamw);
    }
  }
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
