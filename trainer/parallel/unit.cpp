#include "trainer/parallel/unit.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/elementwise/elementwise.h"

namespace megalith {

Unit::Unit(const UnitPlan& unit, const Plan& plan, bool training, Memory& memory)
    : plan_(&unit),
      tensor_(plan.tensor),
      working_place_(plan.parameters_on_host ? MemoryPlace::host : MemoryPlace::device) {
  const bool trains = training && !unit.frozen;
  CHECK(!working_on_host() || (training && unit.optimizer_on_host),
        "{}: weights on the host are rounded from master weights there", unit.name);
  const int64_t S = unit.shard.size();
  const MemoryPlace place = unit.optimizer_on_host ? MemoryPlace::host : MemoryPlace::device;
  const DType type = unit.frozen ? plan.compute : plan.master;
  master_ = memory.at(MemoryClass::parameters, place).tensor(type, {S});
  working_ = plan.compute == type && working_place_ == place
                 ? master_
                 : memory.at(MemoryClass::parameters, working_place_).tensor(plan.compute, {S});
  if (trains) gradient_ = memory[MemoryClass::gradients].tensor(DType::f32, {S});
}

std::vector<LocalShard> shards_of(const UnitPlan& unit, const TensorRank& tensor, const PlacedParam& param,
                                  Interval within) {
  const Interval here = intersect(intersect(param.range(), unit.shard), within);
  std::vector<LocalShard> shards = shards_of(param.spec, tensor, {here.begin - param.offset, here.end - param.offset});
  for (LocalShard& held : shards) held.local += param.offset - unit.shard.begin;
  return shards;
}

template <class Fill>
void Unit::write_frozen(Stream& s, Interval elements, Fill fill) {
  constexpr int64_t part = int64_t{1} << 20;  // elements
  for (int64_t begin = elements.begin; begin < elements.end; begin += part) {
    const int64_t end = std::min(begin + part, elements.end);
    s.upload("load", {master_.flat(begin, end)}, [&](std::span<const Tensor> host) {
      std::vector<float> values(static_cast<size_t>(end - begin));
      const Tensor made(values.data(), DType::f32, {end - begin});
      fill(begin, made);
      cpu::Queue queue;
      cpu::run(queue, Copy{.y = host[0], .x = made});
    });
  }
}

void Unit::initialize_frozen(Stream& s, uint64_t seed) {
  clear(s);
  for (const PlacedParam& param : plan_->params)
    for (const auto& held : shards_of(param, {0, plan_->numel}))
      write_frozen(s, {held.local, held.local + held.shard.numel()}, [&](int64_t begin, Tensor values) {
        cpu::Queue queue;
        if (param.spec.init_std > 0)
          cpu::run(queue, NormalFill{.y = values,
                                     .seed = seed,
                                     .stream = param.spec.id,
                                     .begin = held.shard.elements.begin + begin - held.local,
                                     .std = param.spec.init_std,
                                     .columns = columns_of(held.shard)});
        else
          cpu::run(queue, Fill{.y = values, .value = param.spec.init_value});
      });
}

void Unit::clear(Stream& s) {
  if (plan_->frozen && plan_->optimizer_on_host)
    return write_frozen(s, {0, master_.numel()}, [](int64_t, Tensor values) {
      cpu::Queue queue;
      cpu::run(queue, Fill{.y = values, .value = 0});
    });
  if (plan_->frozen) return launch(s, Fill{.y = master_, .value = 0});
  launch(s, Fill{.y = initial_values(), .value = 0});
  keep(s, initial_values());
}

void Unit::initialize(Stream& s, uint64_t seed) {
  if (plan_->frozen) return initialize_frozen(s, seed);
  const Tensor all = initial_values();
  launch(s, Fill{.y = all, .value = 0});
  for (const PlacedParam& param : plan_->params)
    for (const auto& [shard, local] : shards_of(param, {0, plan_->numel})) {
      const Tensor values = all.flat(local, local + shard.numel());
      if (param.spec.init_std > 0)
        launch(s, NormalFill{.y = values,
                             .seed = seed,
                             .stream = param.spec.id,
                             .begin = shard.elements.begin,
                             .std = param.spec.init_std,
                             .columns = columns_of(shard)});
      else
        launch(s, Fill{.y = values, .value = param.spec.init_value});
    }
  keep(s, all);
  set_working(s);
}

void Unit::round_working(Stream& s) {
  if (plan_->frozen) return;
  if (plan_->optimizer_on_host) s.to_device(at_desk(), master_).wait();
  set_working(s);
}

Tensor Unit::initial_values() const {
  return plan_->optimizer_on_host || master_.dtype() != DType::f32 ? gradient_ : master_;
}

void Unit::keep(Stream& s, Tensor values) {
  const Tensor desk = at_desk();
  if (desk.dtype() != DType::f32) launch(s, Copy{.y = desk, .x = values});
  if (plan_->optimizer_on_host) s.to_host(master_, desk).wait();
}

Tensor Unit::at_desk() const {
  return plan_->optimizer_on_host ? Tensor(gradient_.raw(), master_.dtype(), master_.shape()) : master_;
}

// Rounds the master on the device into the working copy; overwrites the staging memory if that copy is on the host.
void Unit::set_working(Stream& s) {
  if (!has_own_working()) return;
  if (!working_on_host()) return launch(s, Copy{.y = working_, .x = at_desk()});
  const Tensor rounded(gradient_.raw(), working_.dtype(), working_.shape());
  launch(s, Copy{.y = rounded, .x = at_desk()});
  s.to_host(working_, rounded).wait();
}

}  // namespace megalith
