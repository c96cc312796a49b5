#include "trainer/layout/plan.h"

#include <algorithm>
#include <iterator>

#include "configs/adapter.h"
#include "trainer/layout/stage_split.h"
#include "trainer/model/model.h"
#include "trainer/schedule/chunk_times.h"

namespace megalith {

namespace {

DType computed_in(ComputeType type) {
  switch (type) {
    case ComputeType::fp32: return DType::f32;
    case ComputeType::fp16: return DType::f16;
    default: return DType::bf16;
  }
}

// Returns the elements of the unit, with padding, outside the matrices of its products.
std::vector<Interval> outside_products(const UnitPlan& unit) {
  std::vector<Interval> products;
  for (const PlacedParam& param : unit.params)
    if (param.spec.multiplies) products.push_back(param.range());
  std::ranges::sort(products, {}, &Interval::begin);
  products.push_back({unit.numel, unit.numel});
  std::vector<Interval> outside;
  int64_t end = 0;
  for (const Interval& product : products) {
    if (product.begin > end) outside.push_back({end, product.begin});
    end = product.end;
  }
  return outside;
}

// Adds to the runs of a unit those of a parameter at its offset, up to `end`, where its padding ends.
void add_held(std::vector<HeldRun>& all, const PlacedParam& param, const TensorRank& tensor, int64_t end) {
  std::vector<HeldRun> runs = held_runs(param.spec, tensor);
  for (HeldRun& run : runs) run.elements = {param.offset + run.elements.begin, param.offset + run.elements.end};
  runs.back().elements.end = end;
  all.insert(all.end(), runs.begin(), runs.end());
}

// Joins adjacent runs. If ranks `share_rows` of the residual, elements that all of them hold have partial gradients.
std::vector<HeldRun> joined(const std::vector<HeldRun>& runs, int64_t degree, bool share_rows) {
  std::vector<HeldRun> all;
  for (HeldRun run : runs) {
    run.partial = run.partial || (share_rows && run.holders == degree);
    if (!all.empty() && all.back().continues(run))
      all.back().elements.end = run.elements.end;
    else
      all.push_back(run);
  }
  return all;
}

std::vector<Interval> counted_of(const std::vector<HeldRun>& runs) {
  std::vector<Interval> counted;
  for (const HeldRun& run : runs) {
    if (run.holder > 0) continue;
    if (!counted.empty() && counted.back().end == run.elements.begin)
      counted.back().end = run.elements.end;
    else
      counted.push_back(run.elements);
  }
  return counted;
}

// `parts`: each shard can be divided into this many. Takes the trained parameters, or the frozen ones. Under sequence
// parallelism the rows of the residual are divided, so gradients of unsplit parameters become partial sums; the
// embedding sees all rows.
UnitPlan place(const UnitSpec& spec, bool trained, const TensorRank& tensor, bool share_rows, int64_t shards,
               int64_t shard, int64_t parts, bool in_8_bits) {
  // Parameters, shards and their parts start on cache lines, also in bf16.
  constexpr int64_t alignment = 64;
  UnitPlan unit{.name = spec.name, .is_layer = spec.is_layer(), .frozen = !trained};
  for (size_t i = 0; i < spec.params.size(); i++) {
    const ParamSpec& param = spec.params[i];
    if (param.trained != trained) continue;
    unit.params.push_back({param, i, local_shape(param, tensor), 0});
    unit.multiplies = unit.multiplies || param.multiplies;
  }
  int64_t offset = 0;
  const auto is_at = [](const ParamSpec& param, bool decay, bool split, bool partial_gradient) {
    return param.decay == decay && (param.split != Split::none) == split && param.partial_gradient == partial_gradient;
  };
  const auto put = [&](PlacedParam& param) {
    param.offset = offset;
    offset = round_up(offset + param.shape.numel(), alignment);
    add_held(unit.held, param, tensor, offset);
  };
  for (PlacedParam& param : unit.params)
    if (param.spec.fp8) put(param);
  if (in_8_bits) unit.fp8 = offset;
  for (bool decay : {true, false}) {
    for (const auto& [split, partial_gradient] : {std::pair{true, false}, {false, false}, {false, true}})
      for (PlacedParam& param : unit.params)
        if (!param.spec.fp8 && is_at(param.spec, decay, split, partial_gradient)) put(param);
    if (decay) unit.decayed = offset;
  }
  unit.numel = round_up(offset, alignment * shards * parts);
  const bool continues = unit.held.back().holders == tensor.degree && unit.held.back().partial;
  unit.held.push_back({{offset, unit.numel}, tensor.degree, tensor.rank, continues});
  unit.held = joined(unit.held, tensor.degree, share_rows && !spec.embedding);
  unit.counted = counted_of(unit.held);
  const int64_t size = unit.numel / shards;
  unit.shard = {shard * size, (shard + 1) * size};
  unit.outside_products = outside_products(unit);
  return unit;
}

// Returns the number of layers of each chunk of the model.
std::vector<int64_t> layers_of_chunks(const Config& config, const ChunkPlacement& placement) {
  if (!config.parallel.layers_per_stage.empty()) return layers_per_stage(config);
  return split_layers(stage_costs(config.model, config.batch.sequence_length), placement);
}

// Returns the chunks of this rank's stage, without their units.
std::vector<Chunk> chunks_of_stage(const std::vector<int64_t>& layers, const ChunkPlacement& placement, int64_t stage) {
  const auto all = static_cast<int64_t>(layers.size());
  std::vector<Chunk> chunks;
  int64_t first_layer = 0;
  for (int64_t c = 0; c < all; c++) {
    const int64_t count = layers[static_cast<size_t>(c)];
    if (placement.stage_of(c) == stage)
      chunks.push_back({.first = c == 0,
                        .last = c + 1 == all,
                        .turns_before = placement.turns_after(c - 1),
                        .turns_after = placement.turns_after(c),
                        .first_layer = first_layer,
                        .num_layers = count});
    first_layer += count;
  }
  return chunks;
}

// At least two, so that the next layer is gathered while one computes. Layers have one size; the padding of their
// shards, which depends on the number of ranks, does not count.
int64_t live_units(const Plan& plan, int64_t max_live_parameters) {
  constexpr int64_t least = 2;
  if (max_live_parameters == 0) return least;
  int64_t num_shared = 0, layer = 0;
  for (const Chunk& chunk : plan.chunks) num_shared += chunk.num_layers;
  const UnitPlan& first = plan.units[plan.chunks.front().first_unit];
  const UnitPlan& unit = first.keep_gathered && first.frozen_part ? plan.units[*first.frozen_part] : first;
  for (const PlacedParam& param : unit.params) layer += param.shape.numel();
  const int64_t wanted = std::min(least, num_shared);
  CHECK(!plan.gathers() || unit.keep_gathered || max_live_parameters >= wanted * layer,
        "parallel.max_live_parameters = {} is less than {} of {} parameters{}, which are gathered at a time; set {} or "
        "more, or 0",
        max_live_parameters, wanted == 1 ? "a layer" : "two layers", layer,
        plan.tensor.degree > 1 ? " on each tensor-parallel rank" : "", wanted * layer);
  return std::max(least, max_live_parameters / layer);
}

// Lays out the units of the rank's chunks, in the model's order, and sets how each is gathered and reduced.
void add_units(Plan& plan, const Config& config, const Model& model) {
  const ShardingStrategy strategy = config.parallel.sharding_strategy;
  const int64_t shards = plan.mesh.shard, shard = plan.mesh.coordinate(plan.rank, Axis::shard);
  const int64_t parts = plan.reduce_dtype == DType::f32 ? 1 : plan.mesh.data;
  std::vector<UnitPlan> frozen_parts;
  const auto placed_unit = [&](const UnitSpec& spec, bool trained, bool in_8_bits) {
    UnitPlan unit = place(spec, trained, plan.tensor, plan.sequence_parallel, shards, shard, parts, in_8_bits);
    const bool small = unit.numel <= config.parallel.replicate_below;
    unit.keep_gathered = !unit.is_layer || small || strategy != ShardingStrategy::full_shard;
    unit.reduce_once = small || strategy == ShardingStrategy::shard_optimizer;
    if (unit.frozen) unit.optimizer_on_host = config.memory.offload_parameters;
    if (trained && unit.is_layer && config.optimizer.algorithm == Algorithm::muon) unit.matrices = {0, unit.decayed};
    return unit;
  };
  const auto add = [&](const UnitSpec& spec, bool in_8_bits) {
    const bool trains = std::ranges::any_of(spec.params, &ParamSpec::trained);
    const bool both = trains && !std::ranges::all_of(spec.params, &ParamSpec::trained);
    plan.units.push_back(placed_unit(spec, trains, in_8_bits));
    if (both) {
      frozen_parts.push_back(placed_unit(spec, false, in_8_bits));
      frozen_parts.back().name += ", frozen";
      // Layers take turns in slots of one size: the smaller part stays.
      UnitPlan& smaller = plan.units.back().numel < frozen_parts.back().numel ? plan.units.back() : frozen_parts.back();
      smaller.keep_gathered = true;
      plan.units.back().frozen_part = frozen_parts.size() - 1;  // counted from the first of these
    }
    return plan.units.size() - 1;
  };

  const bool first = plan.chunks.front().first, last = plan.chunks.back().last;
  std::vector<size_t> here(model.units().size(), Plan::nowhere);
  const auto add_end = [&](size_t u) {
    const UnitSpec& spec = model.units()[u];
    if ((first && spec.embedding) || (last && spec.head)) here[u] = add(spec, false);
    if (here[u] != Plan::nowhere && spec.embedding && spec.head) plan.tied = here[u];
  };
  for (size_t u = 0; u < model.first_block_unit(); u++) add_end(u);
  for (Chunk& chunk : plan.chunks) {
    chunk.first_unit = plan.units.size();
    for (int64_t layer = chunk.first_layer; layer < chunk.first_layer + chunk.num_layers; layer++)
      add(model.block_unit(layer), plan.has_fp8(layer) && !plan.parameters_on_host);
  }
  for (size_t u = model.end_block_unit(); u < here.size(); u++) add_end(u);
  for (UnitPlan& unit : plan.units)
    if (unit.frozen_part) *unit.frozen_part += plan.units.size();
  std::ranges::move(frozen_parts, std::back_inserter(plan.units));
  // For a tied unit the first stage counts.
  if (!first && plan.tied != Plan::nowhere) plan.units[plan.tied].counted.clear();
  const auto placed = [&](const std::vector<size_t>& units) {
    std::vector<size_t> all;
    for (const size_t u : units) all.push_back(here[u]);
    return all;
  };
  if (first) plan.embedding = placed(model.embedding().units());
  if (last) plan.head = placed(model.head().units());
  plan.head_gradients = plan.head;
  if (plan.splits_tied()) std::ranges::replace(plan.head_gradients, plan.tied, plan.head_share());
  plan.live_units = live_units(plan, config.parallel.max_live_parameters);
}

// Chooses whole units, spread over all of them, so that one is copied while another is updated.
void offload_optimizer(std::vector<UnitPlan>& units, double share) {
  double all = 0, on_host = 0;
  for (UnitPlan& unit : units) {
    if (unit.frozen) continue;
    const auto size = static_cast<double>(unit.shard.size());
    all += size;
    unit.optimizer_on_host = on_host + size / 2 < share * all;
    if (unit.optimizer_on_host) on_host += size;
  }
}

// A step is a list of all its actions.
void check_steps_size(const PipelineShape& shape) {
  constexpr int64_t most = int64_t{1} << 16;
  CHECK(shape.microbatches <= most / shape.virtual_stages,
        "a step of {} microbatches{} is longer than the maximum for a plan, {}; raise batch.microbatch_size or the "
        "number of ranks, or lower batch.global_batch_size",
        shape.microbatches, shape.virtual_stages > 1 ? fmt::format(" in {} chunks", shape.virtual_stages) : "", most);
}

// Each chunk reads and writes the whole gradient of the embedding, in f32. GPUs, whose memory holds it, get a gibibyte
// of logits at a time, in whole tiles of a GEMM: about 8,192 rows of GPT-2's vocabulary in bf16.
int64_t head_rows(const Plan& plan, const Config& config) {
  const int64_t N = plan.rows(), columns = plan.logit_columns;
  const auto share = [&](int64_t chunks) { return (N + chunks - 1) / chunks; };
  if (const int64_t chunks = config.memory.lm_head_chunks; chunks > 0) return share(chunks);
  if (config.run.device == Device::cpu) return std::clamp<int64_t>((int64_t{1} << 25) / columns, 1, N);
  constexpr int64_t bytes = int64_t{1} << 30, tile = 256;
  const int64_t most = std::max<int64_t>(1, bytes / (columns * size_of(plan.compute)));
  return std::min(N, round_up(share((N + most - 1) / most), tile));
}

void set_memory(Plan& plan, const MemoryConfig& memory) {
  using Kind = ActivationCheckpointing::Kind;
  const ActivationCheckpointing& choice = memory.activation_checkpointing;
  plan.kept = choice.kind == Kind::none ? Kept::all : choice.kind == Kind::selective ? Kept::products : Kept::input;
  if (choice.kind == Kind::group) plan.group = choice.group_size;
  if (choice.kind == Kind::contiguous) plan.group = plan.model.layers;
  if (memory.offload_activations) plan.horizon = memory.activation_loading_horizon;
  plan.parameters_on_host = memory.offload_parameters;
}

}  // namespace

namespace {
void check_freeze(const Model& model, const std::string& freeze) {
  std::vector<std::string> names;
  for (const UnitSpec& unit : model.units())
    for (const ParamSpec& param : unit.params) names.push_back(param.name);
  const std::string wrong = freeze_problem(freeze, names);
  CHECK(wrong.empty(), "train.freeze {}", wrong);
  CHECK(num_trained(model.units()) > 0, "train.freeze leaves no parameter to train; name fewer");
}
}  // namespace
int64_t UnitPlan::size_outside_products() const {
  int64_t size = 0;
  for (const Interval& part : outside_products) size += part.size();
  return size;
}

std::vector<HeldRun> UnitPlan::partial_here() const {
  std::vector<HeldRun> here;
  for (HeldRun run : held) {
    run.elements = intersect(run.elements, shard);
    if (run.partial && run.elements.size() > 0) here.push_back(run);
  }
  return here;
}

BatchPlan batch_plan(const Config& config, const MeshShape& mesh, int rank) {
  return {.batch = config.batch.global_batch_size,
          .microbatch = config.batch.microbatch_size * (config.parallel.prescaled_batch ? 1 : mesh.tensor),
          .ranks = mesh.batch_ranks(),
          .rank = mesh.batch_rank(rank)};
}

Interval BatchPlan::sequences(int64_t k) const {
  const int64_t first = std::min(batch, (k * ranks + rank) * microbatch);
  return {first, std::min(batch, first + microbatch)};
}

double BatchPlan::idle() const {
  return 1.0 - static_cast<double>(batch) / static_cast<double>(num_microbatches() * microbatch * ranks);
}

DType stored_in(StorageType type) { return type == StorageType::fp32 ? DType::f32 : DType::bf16; }

Pipeline make_pipeline(const Config& config, const MeshShape& mesh) {
  CHECK(config.model.vocab > 0, "model.vocab = 0, but there is no tokenizer; set model.vocab or data.tokenizer");
  Pipeline pipeline{.shape = {.stages = mesh.pipeline,
                              .virtual_stages = config.parallel.virtual_stages,
                              .microbatches = batch_plan(config, mesh, 0).num_microbatches(),
                              .active_microbatches = config.parallel.active_microbatches,
                              .kind = config.parallel.pipeline_schedule}};
  check_steps_size(pipeline.shape);
  pipeline.layers = layers_of_chunks(config, pipeline.shape.placement());
  if (pipeline.shape.in_halves()) {
    pipeline.shape.times = chunk_times(config, mesh, pipeline.layers);
    pipeline.shape.message = message_time(config, mesh);
  }
  pipeline.schedules = make_schedules(pipeline.shape);
  return pipeline;
}

Plan make_plan(const Config& config, int num_ranks, int rank) {
  return make_plan(config, num_ranks, rank, make_pipeline(config, mesh_shape(config, num_ranks)));
}

Plan make_plan(const Config& config, int num_ranks, int rank, const Pipeline& pipeline) {
  Plan plan;
  plan.mesh = mesh_shape(config, num_ranks);
  plan.rank = rank;
  plan.tensor = {plan.mesh.tensor, plan.mesh.coordinate(rank, Axis::tensor)};
  plan.compute = computed_in(config.precision.compute);
  if (config.precision.products == ProductType::fp8)
    plan.fp8_layers = {config.precision.first_layers_in_bf16,
                       config.model.layers - config.precision.last_layers_in_bf16};
  plan.residual = config.precision.residual == ResidualType::fp32 ? DType::f32 : plan.compute;
  plan.master = stored_in(config.precision.master);
  plan.reduce_dtype = stored_in(config.precision.gradient_reduce);
  const bool on_cpu = config.run.device == Device::cpu;
  plan.direction = on_cpu || plan.compute == DType::f32 ? DType::f32 : DType::bf16;
  const int nodes = plan.mesh.shard_nodes();
  plan.relay = plan.reduce_dtype != DType::f32 && nodes > 1 && nodes < plan.mesh.shard;
  plan.model = config.model;
  plan.sequence_parallel = config.parallel.sequence_parallel && plan.tensor.degree > 1;
  plan.tensor_pieces = plan.tensor.degree > 1 ? config.parallel.tensor_pieces : 0;
  plan.hierarchical = config.parallel.hierarchical_allgather && plan.mesh.shard_nodes() > 1;

  plan.batch = batch_plan(config, plan.mesh, rank);
  plan.masked = config.data.masked;
  plan.isolates_documents = config.data.isolate_documents || plan.masked;
  // An example may hold tokens that end documents elsewhere.
  plan.end_of_text = plan.masked ? -1 : static_cast<int32_t>(config.data.end_of_text);
  plan.cuda_graphs = config.run.cuda_graphs && config.run.device != Device::cpu;
  plan.draws_from_memory = plan.cuda_graphs && (config.model.dropout > 0 || config.model.adapter.dropout > 0);
  plan.saves_frozen = !config.model.adapter.in_use();
  const Model model(config.model);
  check_freeze(model, config.model.freeze);
  const ParamSpec& table = model.token_embedding();
  const int64_t N = plan.batch.microbatch * config.batch.sequence_length;
  plan.pass = {.B = plan.batch.microbatch,
               .T = config.batch.sequence_length,
               .rows = N,
               .parts = plan.tensor.degree,
               .part = plan.tensor.rank,
               .vocabulary = vocabulary_part(table, plan.tensor)};
  if (plan.sequence_parallel) {
    plan.pass.rows = N / plan.tensor.degree;
    plan.pass.first_row = plan.tensor.rank * plan.pass.rows;
  }
  plan.logit_columns = local_shape(table, plan.tensor)[0];

  set_memory(plan, config.memory);
  plan.pass.head_rows = head_rows(plan, config);
  plan.pipeline = pipeline.shape;
  const int64_t stage = plan.mesh.coordinate(rank, Axis::pipeline);
  plan.schedule = pipeline.schedules[static_cast<size_t>(stage)];
  plan.chunks = chunks_of_stage(pipeline.layers, pipeline.shape.placement(), stage);
  add_units(plan, config, model);
  offload_optimizer(plan.units, config.memory.offload_optimizer);
  return plan;
}

}  // namespace megalith
