#include "configs/shrink.h"

#include "configs/degrees.h"
#include "configs/hardware.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace megalith {

namespace {

constexpr int64_t layers_a_stage = 2, heads_a_rank = 2, head_size = 8, sequence = 32, microbatch = 2;

// Halves the largest degree until the product is `few`.
void divide(std::array<int64_t*, 4> degrees, int64_t few) {
  const std::array<int64_t, 4> whole{*degrees[0], *degrees[1], *degrees[2], *degrees[3]};
  const auto product = [&] {
    int64_t p = 1;
    for (const int64_t* degree : degrees) p *= *degree;
    return p;
  };
  while (product() > few) {
    int64_t* largest = *std::ranges::max_element(degrees, {}, [](const int64_t* degree) { return *degree; });
    CHECK(*largest % 2 == 0 && *largest > 2,
          "the layout, with tensor {} x shard {} x data {} x pipeline {}, does not shrink to {}; {} keep all of it",
          whole[0], whole[1], whole[2], whole[3], counted(few, "rank"), product());
    *largest /= 2;
  }
  CHECK(product() == few, "the layout shrinks by halves, to {} but not to {}; use the former",
        counted(product(), "rank"), few);
}

double parameters_of_layer(const ModelConfig& model) {
  const auto h = static_cast<double>(model.hidden), f = static_cast<double>(model.features());
  const double products = model.activation == Activation::swiglu ? 2 : 1;
  const auto a = static_cast<double>(model.heads * model.size_of_head()), qkv = static_cast<double>(model.qkv_width());
  return h * (qkv + a) + (products + 1) * h * f + (model.qkv_bias ? qkv : 0) + (model.bias ? 2 * h + products * f : 0) +
         (model.norm == NormKind::layer ? 4 : 2) * h +
         (model.query_key_norm ? 2 * static_cast<double>(model.size_of_head()) : 0);
}

// Keeps the sharing of key-value heads, and how many ranks hold each where the tensor degree exceeds their number.
int64_t key_value_heads_of(const Config& config, int64_t tensor, int64_t heads) {
  const int64_t shared = config.model.kv_heads(), ranks = config.parallel.tensor_parallel_degree;
  if (shared == config.model.heads) return heads;
  return shared >= ranks ? tensor : std::gcd(tensor, std::max<int64_t>(1, tensor * shared / ranks));
}

}  // namespace

Config shrink(const Config& config, int64_t num_ranks, int64_t few_ranks) {
  CHECK(few_ranks >= 1 && few_ranks <= num_ranks,
        "the layout is for {}, fewer than {}; shrink it to at most as many, and at least one",
        counted(num_ranks, "rank"), few_ranks);
  Degrees d = degrees(config, num_ranks);
  const int64_t groups = d.shard * d.data, batch = config.batch.global_batch_size;
  const int64_t per_group = config.batch.microbatch_size * (config.parallel.prescaled_batch ? 1 : d.tensor);
  const int64_t microbatches = (batch + groups * per_group - 1) / (groups * per_group);
  const int64_t per_node = config.parallel.ranks_per_node;
  divide({&d.tensor, &d.shard, &d.data, &d.pipeline}, few_ranks);

  Config small = config;
  ModelConfig& model = small.model;
  ParallelConfig& parallel = small.parallel;
  model.layers = std::min(model.layers, layers_a_stage * d.pipeline * parallel.virtual_stages);
  model.heads = heads_a_rank * d.tensor;
  model.hidden = head_size * model.heads;
  if (model.key_value_heads > 0) model.key_value_heads = key_value_heads_of(config, d.tensor, model.heads);
  if (model.head_size > 0) model.head_size = head_size;
  model.rotary_share = std::max(model.rotary_share, 2.0 / head_size);
  if (model.feed_forward > 0) {  // keeps the ratio to the width, in whole parts
    const int64_t part = model.hidden * config.model.feed_forward / config.model.hidden / d.tensor;
    const int64_t multiple = config.precision.products == ProductType::fp8 ? 16 : 1;
    model.feed_forward = std::max<int64_t>(1, part / multiple) * multiple * d.tensor;
  }
  model.vocab = 0;
  model.context = small.batch.sequence_length = std::min(sequence, config.batch.sequence_length);
  parallel.tensor_parallel_degree = d.tensor;
  parallel.pipeline_parallel_degree = d.pipeline;
  parallel.layers_per_stage.clear();
  if (is_v_shaped(parallel.pipeline_schedule))  // a V needs as many as there are stages
    parallel.active_microbatches = parallel.active_microbatches * d.pipeline / config.parallel.pipeline_parallel_degree;
  if (parallel.sharded_data_parallel_degree > 0) parallel.sharded_data_parallel_degree = d.shard;
  // Several nodes remain several, and a shard group that spans nodes spans two.
  if (0 < per_node && per_node < num_ranks)
    parallel.ranks_per_node = std::max(d.tensor, std::min(few_ranks / 2, d.tensor * d.shard / 2));
  const auto scaled = [&](int64_t parameters) {
    const double share = parameters_of_layer(model) / parameters_of_layer(config.model);
    return parameters == 0 ? 0 : std::max<int64_t>(1, std::llround(static_cast<double>(parameters) * share));
  };
  parallel.max_live_parameters = scaled(parallel.max_live_parameters);
  parallel.replicate_below = scaled(parallel.replicate_below);
  small.batch.microbatch_size = std::min(microbatch, config.batch.microbatch_size);
  const int64_t alive = std::max(d.pipeline * parallel.virtual_stages, parallel.active_microbatches);
  small.batch.global_batch_size = small.batch.microbatch_size * (parallel.prescaled_batch ? 1 : d.tensor) * d.shard *
                                  d.data * std::min(microbatches, 3 * alive);
  small.run.output += "-shrunk";
  small.checkpoint.directory = small.run.output + "/checkpoints";
  small.hardware.profile.clear();
  validate(small);
  return small;
}

Config shrink(const Config& config, int64_t few_ranks) {
  CHECK(!config.hardware.profile.empty(),
        "--shrink: hardware.profile is empty, so the number of devices is unknown; choose one of {}",
        known_profile_names());
  const int64_t per_node = load_hardware(config.hardware).device.per_node;
  Config placed = config;
  if (placed.parallel.ranks_per_node == 0) placed.parallel.ranks_per_node = per_node;
  return shrink(placed, config.hardware.nodes * per_node, few_ranks);
}

}  // namespace megalith
