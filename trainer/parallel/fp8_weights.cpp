#include "trainer/parallel/fp8_weights.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/fp8.h"

namespace megalith {

namespace {

// Parameters and shards begin on multiples of this (plan.h), and it is one of fp8_multiple.
constexpr int64_t row = 64;
Tensor in_rows(const Tensor& flat) { return flat.view({flat.numel() / row, row}); }

// Calls f(i, part) for the i-th parameter that is cast and the part of it in this rank's shard, which may be empty, as
// elements of the shard.
template <class F>
void each_cast(const UnitPlan& unit, F f) {
  size_t i = 0;
  for (const PlacedParam& param : unit.params) {
    if (!param.spec.fp8) continue;
    const Interval here = intersect(param.range(), unit.shard);
    f(i++, here.size() > 0 ? Interval{here.begin - unit.shard.begin, here.end - unit.shard.begin} : Interval{});
  }
}

}  // namespace

Fp8Weights::Fp8Weights(const Plan& plan, Runtime& runtime, const std::vector<Unit>& units)
    : plan_(plan), runtime_(runtime), all_(units) {
  Arena& arena = runtime.memory[MemoryClass::parameters];
  size_t scales = 0;
  for (size_t u = 0; u < plan.units.size(); u++) {
    const UnitPlan& unit = plan.units[u];
    if (unit.fp8 == 0) continue;
    const int64_t rest = plan.mesh.shard > 1 ? unit.numel - unit.fp8 : 0;
    units_[u] = {.shard = arena.tensor(DType::e4m3, {unit.shard.size()}),
                 .first_scale = scales,
                 .rest = rest > 0 ? arena.tensor(plan.compute, {rest}) : Tensor{}};
    each_cast(unit, [&](size_t, Interval) { scales++; });
  }
  if (scales == 0) return;
  amax_ = arena.tensor(DType::f32, {static_cast<int64_t>(scales)});
  unscale_ = arena.tensor(DType::f32, {static_cast<int64_t>(scales)});
}

void Fp8Weights::cast() {
  Stream& s = runtime_.stream;
  const auto cell = [](const Tensor& of, size_t i) {
    return of.flat(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
  };
  launch(s, Fill{.y = amax_, .value = 0});
  for (const auto& [u, unit] : units_)
    each_cast(plan_.units[u], [&, first = unit.first_scale, working = all_[u].working()](size_t i, Interval part) {
      launch(s, LargestMagnitude{.amax = cell(amax_, first + i), .x = working.flat(part.begin, part.end)});
    });
  for (const Channel over : {Channel::shard, Channel::tensor})
    runtime_.mesh.channel(over).all_reduce(s, amax_, Reduce::max).wait();
  // A rank with no part of a parameter also needs its scale.
  for (const auto& [u, unit] : units_) {
    each_cast(plan_.units[u], [&, &cast = unit, working = all_[u].working()](size_t i, Interval part) {
      launch(s, CastToFp8{.y = in_rows(cast.shard.flat(part.begin, part.end)),
                          .transposed = {},
                          .unscale = cell(unscale_, cast.first_scale + i),
                          .x = in_rows(working.flat(part.begin, part.end)),
                          .amax = cell(amax_, cast.first_scale + i)});
    });
    if (const Tensor others = not_cast(u); others.numel() > 0) launch(s, Fill{.y = others, .value = 0});
    if (!unit.rest.empty()) gather_rest(u);
  }
}

// Returns what else is gathered with the rank's shard, as pairs.
Tensor Fp8Weights::not_cast(size_t unit) const {
  const Interval shard = plan_.units[unit].shard;
  const int64_t begin = std::clamp<int64_t>(plan_.units[unit].fp8 - shard.begin, 0, shard.size());
  const Tensor others = units_.at(unit).shard.flat(begin, shard.size());
  return {others.raw(), DType::bf16, {others.numel() / 2}};
}

// The last ranks have these elements: their shards are gathered.
void Fp8Weights::gather_rest(size_t unit) {
  const UnitPlan& plan = plan_.units[unit];
  const int64_t each = plan.shard.size();
  const Interval ranks{plan.fp8 / each, plan_.mesh.shard};
  const auto scope = runtime_.memory[MemoryClass::scratch].scope();
  const Tensor whole = runtime_.memory[MemoryClass::scratch].tensor(plan_.compute, {ranks.size() * each});
  Communicator& shards = runtime_.mesh.channel(Channel::shard);
  shards.all_gather_of(runtime_.stream, ranks, whole, all_[unit].working()).wait();
  const int64_t begin = plan.fp8 - ranks.begin * each;
  launch(runtime_.stream, Copy{.y = units_.at(unit).rest, .x = whole.flat(begin, whole.numel())});
}

void Fp8Weights::add_views(UnitTensors& tensors, size_t unit, const Tensor& whole) const {
  const UnitPlan& plan = plan_.units[unit];
  const CastUnit& cast = units_.at(unit);
  auto scale = static_cast<int64_t>(cast.first_scale);
  for (const PlacedParam& param : plan.params) {
    const Interval at = param.range();
    if (param.spec.fp8) {
      tensors.set(param.index, whole.flat(at.begin, at.end).view(param.shape), unscale_.flat(scale, scale + 1));
      scale++;
    } else {
      const Tensor flat = cast.rest.empty() ? all_[unit].working().flat(at.begin, at.end)
                                            : cast.rest.flat(at.begin - plan.fp8, at.end - plan.fp8);
      tensors.set(param.index, flat.view(param.shape));
    }
  }
}

}  // namespace megalith
