#include "trainer/step/optimizer.h"

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "trainer/step/learning_rate.h"

namespace megalith {

Optimizer::Optimizer(const OptimizerConfig& config, const std::vector<Unit>& units, Memory& memory) : config_(config) {
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
}

void Optimizer::update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor scale) {
  AdamW adamw{.learning_rate = learning_rate_at(config_, step),
              .beta1 = config_.beta1,
              .beta2 = config_.beta2,
              .epsilon = config_.epsilon,
              .weight_decay = 0,
              .update = step + 1};
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
                   rounds ? part(unit.working()) : Tensor{}, part(unit.gradient()), scale, adamw);
    }
  }
}

}  // namespace megalith
