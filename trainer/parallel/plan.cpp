#include "trainer/parallel/plan.h"

#include <algorithm>

namespace megalith {

namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

UnitPlan place(const UnitSpec& spec, int64_t shards, int64_t shard) {
  // Parameters and shards start on cache lines, also in bf16.
  constexpr int64_t alignment = 64;
  UnitPlan unit{.name = spec.name};
  for (const ParamSpec& param : spec.params) unit.params.push_back({.spec = param, .offset = 0});
  int64_t offset = 0;
  for (bool decay : {true, false}) {
    for (PlacedParam& param : unit.params)
      if (param.spec.decay == decay) {
        param.offset = offset;
        offset = round_up(offset + param.spec.shape.numel(), alignment);
      }
    if (decay) unit.decayed = offset;
  }
  unit.numel = round_up(offset, alignment * shards);
  const int64_t size = unit.numel / shards;
  unit.shard = {shard * size, (shard + 1) * size};
  return unit;
}

std::string divisors_of(int n) {
  std::string list;
  for (int d = 1; d <= n; d++)
    if (n % d == 0) list += fmt::format("{}{}", list.empty() ? "" : " ", d);
  return list;
}

}  // namespace

Interval intersect(Interval a, Interval b) {
  const Interval r{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return r.begin < r.end ? r : Interval{};
}

Interval part_of(Interval whole, int64_t index, int64_t parts) {
  const int64_t each = whole.size() / parts, longer = whole.size() % parts;
  const int64_t begin = whole.begin + index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

Interval BatchPlan::sequences(int64_t k) const {
  const int64_t first = std::min(batch, (k * ranks + rank) * microbatch);
  return {first, std::min(batch, first + microbatch)};
}

double BatchPlan::idle() const {
  return 1.0 - static_cast<double>(batch) / static_cast<double>(num_microbatches() * microbatch * ranks);
}

MeshShape mesh_shape(const Config& config, int num_ranks) {
  const ParallelConfig& p = config.parallel;
  if (p.sharding_strategy == ShardingStrategy::no_shard) {
    CHECK(p.sharded_data_parallel_degree <= 1,
          "parallel.sharded_data_parallel_degree = {} with parallel.sharding_strategy = no_shard; use full_shard, or "
          "leave the degree at 0",
          p.sharded_data_parallel_degree);
    return {.data = num_ranks};
  }
  const auto degree = static_cast<int>(p.sharded_data_parallel_degree);
  if (degree == 0) return {.shard = num_ranks};
  CHECK(num_ranks % degree == 0,
        "parallel.sharded_data_parallel_degree = {} does not divide the {} data-parallel ranks; these do: {}", degree,
        num_ranks, divisors_of(num_ranks));
  return {.shard = degree, .data = num_ranks / degree};
}

Plan make_plan(const Config& config, int num_ranks, int rank) {
  CHECK(config.model.vocab > 0, "model.vocab = 0: no tokenizer to take it from; set model.vocab or data.tokenizer");
  Plan plan;
  plan.mesh = mesh_shape(config, num_ranks);
  plan.rank = rank;
  plan.compute = config.precision.compute == ComputeType::fp32 ? DType::f32 : DType::bf16;
  plan.model = config.model;
  plan.dims = {.B = config.batch.microbatch_size,
               .T = config.batch.sequence_length,
               .H = config.model.heads,
               .D = config.model.hidden / config.model.heads};
  const int shard = plan.mesh.coordinate(rank, Axis::shard);
  for (const UnitSpec& unit : model_spec(config.model)) plan.units.push_back(place(unit, plan.mesh.shard, shard));
  plan.recompute = config.memory.activation_checkpointing.kind == ActivationCheckpointing::Kind::each;
  plan.head_chunks = config.memory.lm_head_chunks;
  plan.batch = {.batch = config.batch.global_batch_size,
                .microbatch = config.batch.microbatch_size,
                .ranks = plan.mesh.batch_ranks(),
                .rank = plan.mesh.batch_rank(rank)};
  plan.schedule = accumulate(plan.batch.num_microbatches());
  plan.live_microbatches = 1;
  return plan;
}

}  // namespace megalith
