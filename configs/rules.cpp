#include "configs/rules.h"

#include "configs/field_table.h"
#include "configs/step_range.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <sstream>

namespace megalith {
namespace {

using Found = std::optional<Problem>;

// Returns up to eight divisors of n nearest to x, in order.
std::vector<int64_t> divisors_near(int64_t n, int64_t x) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    divisors.push_back(d);
    if (d != n / d) divisors.push_back(n / d);
  }
  std::sort(divisors.begin(), divisors.end());
  return nearest(divisors, x, 8);
}

Found check_values(const Config& config) {
  for (const Field& field : field_table())
    if (const std::string wrong = value_problem(field, field.get(config)); !wrong.empty())
      return problem(config, field.name(), "{}", wrong);
  return {};
}

Found check_model(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.head_size == 0 && model.hidden % model.heads != 0)
    return problem(config, "model.heads", "does not divide model.hidden = {}; these do: {}", model.hidden,
                   fmt::join(divisors_near(model.hidden, model.heads), " "));
  if (model.heads % model.kv_heads() != 0)
    return problem(config, "model.key_value_heads", "does not divide model.heads = {}; these do: {}", model.heads,
                   fmt::join(divisors_near(model.heads, model.key_value_heads), " "));
  if (model.positions != Positions::rotary) return {};
  if (const int64_t turned = model.rotary_features(); turned < 2 || turned > 256)
    return problem(config, "model.rotary_share",
                   "of the {} features of a head means {} rotated features; they come in pairs, 2 to 256 of them",
                   model.size_of_head(), turned);
  if (model.rotary_low >= model.rotary_high && model.rotary_factor != 1)
    return problem(config, "model.rotary_low",
                   "is not below model.rotary_high = {}; frequencies between them are blended", model.rotary_high);
  return {};
}

Found check_shapes(const Config& config) {
  const ModelConfig& model = config.model;
  const BatchConfig& batch = config.batch;
  if (batch.sequence_length > model.context)
    return problem(config, "batch.sequence_length", "is beyond model.context = {}; shorten the one or raise the other",
                   model.context);
  if (batch.global_batch_size % batch.microbatch_size != 0)
    return problem(config, "batch.microbatch_size", "does not divide batch.global_batch_size = {}; these do: {}",
                   batch.global_batch_size,
                   fmt::join(divisors_near(batch.global_batch_size, batch.microbatch_size), " "));
  return {};
}

// Returns the multiples of `step` on either side of n, within [1, most].
std::vector<int64_t> multiples_near(int64_t step, int64_t n, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t multiple : {n / step * step, (n / step + 1) * step})
    if (multiple >= 1 && multiple <= most) found.push_back(multiple);
  return found;
}

// Returns the divisors of the heads near this degree that divide the key-value heads or are a multiple of them.
std::vector<int64_t> degrees_that_share(const ModelConfig& model, int64_t degree) {
  std::vector<int64_t> found = divisors_near(model.heads, degree);
  std::erase_if(found, [&](int64_t d) { return model.kv_heads() % d != 0 && d % model.kv_heads() != 0; });
  return found;
}

// Rules that need the number of ranks are in degrees.cpp.
Found check_tensor_parallel(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const BatchConfig& batch = config.batch;
  const int64_t degree = parallel.tensor_parallel_degree;
  if (config.model.heads % degree != 0)
    return problem(config, "parallel.tensor_parallel_degree", "does not divide model.heads = {}; these do: {}",
                   config.model.heads, fmt::join(divisors_near(config.model.heads, degree), " "));
  if (const int64_t heads = config.model.kv_heads(); heads % degree != 0 && degree % heads != 0)
    return problem(config, "parallel.tensor_parallel_degree",
                   "neither divides model.key_value_heads = {} nor is a multiple of it, so that ranks can neither "
                   "divide its heads nor share them evenly; these fit: {}",
                   heads, fmt::join(degrees_that_share(config.model, degree), " "));
  if (config.model.features() % degree != 0)
    return problem(config, "parallel.tensor_parallel_degree",
                   "does not divide the {} features of a feed-forward layer (model.feed_forward); these do: {}",
                   config.model.features(), fmt::join(divisors_near(config.model.features(), degree), " "));
  const int64_t sequences = batch.microbatch_size * (parallel.prescaled_batch ? 1 : degree);
  if (batch.global_batch_size % sequences != 0) {
    const auto most = static_cast<int64_t>(find_field("batch.global_batch_size")->range.max);
    const auto batches = multiples_near(sequences, batch.global_batch_size, most);
    return problem(config, "parallel.prescaled_batch",
                   "makes microbatches of batch.microbatch_size {} x parallel.tensor_parallel_degree {} = {} "
                   "sequences, which do not divide batch.global_batch_size = {}; set true{}",
                   batch.microbatch_size, degree, sequences, batch.global_batch_size,
                   batches.empty() ? "" : fmt::format(", or a batch of {}", fmt::join(batches, " or ")));
  }
  const int64_t rows = batch.microbatch_size * batch.sequence_length;
  if (parallel.sequence_parallel && parallel.prescaled_batch && rows % degree != 0) {
    const int64_t step = degree / std::gcd(degree, batch.microbatch_size);
    const auto lengths = multiples_near(step, batch.sequence_length, config.model.context);
    return problem(config, "parallel.sequence_parallel",
                   "divides the rows of a microbatch, batch.microbatch_size {} x batch.sequence_length {} = {}, which "
                   "parallel.tensor_parallel_degree = {} does not divide; degrees that do: {}{}",
                   batch.microbatch_size, batch.sequence_length, rows, degree,
                   fmt::join(divisors_near(std::gcd(rows, config.model.heads), degree), " "),
                   lengths.empty() ? "" : fmt::format("; sequences that fit: {}", fmt::join(lengths, " ")));
  }
  return {};
}

// In doubles, which do not overflow: plans count in 64 bits.
Found check_sizes(const Config& config) {
  constexpr double most_elements = 1e15;
  const ModelConfig& model = config.model;
  const BatchConfig& batch = config.batch;
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double rows = real(batch.microbatch_size) * real(batch.sequence_length) *
                      (config.parallel.prescaled_batch ? 1 : real(config.parallel.tensor_parallel_degree));
  const double wide = rows * real(std::max({model.features(), model.vocab, model.head_size * model.heads}));
  const double scores = rows * real(batch.sequence_length) * real(model.heads);
  if (std::max(wide, scores) > most_elements)
    return problem(config, "batch.microbatch_size",
                   "x batch.sequence_length = {} makes tensors of {:.1e} elements, and no machine has {:.0e} bytes of "
                   "memory; lower the one or the other",
                   batch.sequence_length, std::max(wide, scores), most_elements);
  return {};
}

Found check_pipeline(const Config& config) {
  const int64_t degree = config.parallel.pipeline_parallel_degree, chunks = config.parallel.virtual_stages;
  const int64_t layers = config.model.layers;
  if (chunks > 1 && degree == 1)
    return problem(config, "parallel.virtual_stages",
                   "needs more than one pipeline rank; set 1, or raise parallel.pipeline_parallel_degree");
  const PipelineSchedule schedule = config.parallel.pipeline_schedule;
  if (is_v_shaped(schedule) && chunks != 2)
    return problem(config, "parallel.pipeline_schedule",
                   "has two chunks of layers on each rank, but parallel.virtual_stages is {}; set that to 2", chunks);
  const int64_t active = config.parallel.active_microbatches;
  if (schedule == PipelineSchedule::v_half && active > 0)
    return problem(config, "parallel.active_microbatches",
                   "has no effect under parallel.pipeline_schedule = \"v_half\"; set 0");
  if (schedule == PipelineSchedule::zb_v && 0 < active && active < degree)
    return problem(config, "parallel.active_microbatches",
                   "is less than the {} that parallel.pipeline_schedule = \"zb_v\" needs on this many pipeline ranks; "
                   "set 0, or the schedule \"v_half\", which needs half the memory",
                   degree);
  if (degree * chunks > layers) {
    std::vector<std::string> most;
    if (degree <= layers) most.push_back(fmt::format("{} x {}", degree, layers / degree));
    if (chunks > 1 && layers / chunks > 1) most.push_back(fmt::format("{} x {}", layers / chunks, chunks));
    if (most.empty()) most.push_back(fmt::format("{} x 1", layers));
    return problem(config, "parallel.pipeline_parallel_degree",
                   "x parallel.virtual_stages = {} is more stages than model.layers = {}; at most {}", chunks, layers,
                   fmt::join(most, " or "));
  }
  return {};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Returns 0 if the word is not a number from 1 to `layers`.
int64_t layer_count(const std::string& word, int64_t layers) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  const bool number = error == std::errc() && end == word.data() + word.size();
  return number && count >= 1 && count <= layers ? count : 0;
}

Found check_layers_per_stage(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.layers_per_stage.empty()) return {};
  const int64_t layers = config.model.layers, stages = parallel.pipeline_parallel_degree * parallel.virtual_stages;
  const auto wrong = [&](const std::string& what) {
    return problem(config, "parallel.layers_per_stage",
                   "{}; give {} numbers that add up to model.layers = {}, or leave it empty", what, stages, layers);
  };
  const std::vector<std::string> words = words_of(parallel.layers_per_stage);
  int64_t sum = 0;
  for (const std::string& word : words) {
    const int64_t count = layer_count(word, layers);
    if (count == 0) return wrong(fmt::format("has {}, which is not a number from 1 to {}", toml_quoted(word), layers));
    sum += count;
  }
  if (static_cast<int64_t>(words.size()) != stages)
    return wrong(
        fmt::format("has {} for the {} stages of parallel.pipeline_parallel_degree = {} x parallel.virtual_stages = {}",
                    words.size(), stages, parallel.pipeline_parallel_degree, parallel.virtual_stages));
  if (sum != layers) return wrong("makes " + counted(sum, "layer"));
  return {};
}

Found check_sharding(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.sharding_strategy != ShardingStrategy::no_shard) return {};
  const auto useless = [&](const char* key, const char* nothing_to, const char* off) {
    return problem(config, key,
                   "has nothing to {} under parallel.sharding_strategy = \"no_shard\"; set {}, or another strategy",
                   nothing_to, off);
  };
  if (parallel.sharded_data_parallel_degree > 1) return useless("parallel.sharded_data_parallel_degree", "share", "0");
  if (parallel.hierarchical_allgather) return useless("parallel.hierarchical_allgather", "gather", "false");
  if (parallel.max_live_parameters > 0) return useless("parallel.max_live_parameters", "gather", "0");
  if (parallel.replicate_below > 0) return useless("parallel.replicate_below", "replicate", "0");
  return {};
}

Found check_placement(const Config& config) {
  std::string words = config.parallel.placement;
  std::replace(words.begin(), words.end(), ',', ' ');
  std::vector<std::string> axes = words_of(words);
  std::sort(axes.begin(), axes.end());
  if (axes != std::vector<std::string>{"data", "pipeline", "shard", "tensor"})
    return problem(config, "parallel.placement",
                   "is not an order of the axes; write each of tensor, shard, data and pipeline once, innermost first");
  return {};
}

Found check_memory(const Config& config) {
  const ActivationCheckpointing::Kind kind = config.memory.activation_checkpointing.kind;
  const bool whole_layers =
      kind != ActivationCheckpointing::Kind::none && kind != ActivationCheckpointing::Kind::selective;
  if (config.memory.offload_activations && !whole_layers)
    return problem(config, "memory.offload_activations",
                   "copies the inputs of recomputed layers, but memory.activation_checkpointing = \"{}\" recomputes no "
                   "whole layer; set each, group_N or contiguous there",
                   to_string(config.memory.activation_checkpointing));
  if (config.memory.offload_parameters && config.parallel.sharding_strategy != ShardingStrategy::full_shard)
    return problem(config, "memory.offload_parameters",
                   "copies a layer to the device when it is gathered, but parallel.sharding_strategy = \"{}\" does not "
                   "gather it for each use; set full_shard there, which also works on one rank",
                   to_string(config.parallel.sharding_strategy));
  if (config.memory.offload_parameters && config.memory.offload_optimizer < 1)
    return problem(config, "memory.offload_parameters",
                   "is for weights whose master weights are also in host memory, but memory.offload_optimizer = {} "
                   "leaves some on the device; set 1 there",
                   config.memory.offload_optimizer);
  return {};
}

Found check_run(const Config& config) {
  if (config.run.output.empty()) return problem(config, "run.output", "is empty; name a folder, such as runs/first");
  if (config.checkpoint.resume.empty())
    return problem(config, "checkpoint.resume", "is empty; write auto, best, never or the path of a checkpoint");
  if (config.train.evaluate_every > 0 && config.data.validation.empty())
    return problem(config, "train.evaluate_every",
                   "needs data.validation, which is empty; name a token file there, or set 0");
  if (config.checkpoint.keep_best && config.data.validation.empty())
    return problem(config, "checkpoint.keep_best",
                   "needs data.validation, which is empty; name a token file there, or set false");
  if (config.train.early_stopping_patience > 0 && config.train.evaluate_every == 0)
    return problem(config, "train.early_stopping_patience",
                   "counts evaluations, but train.evaluate_every = 0 makes one only at the end; set both, or 0 here");
  return {};
}

// Refuses settings that trainer/parallel/graphs.h does not support.
Found check_cuda_graphs(const Config& config) {
  if (!config.run.cuda_graphs) return {};
  if (const int64_t degree = config.parallel.tensor_parallel_degree; degree > 1)
    return problem(config, "run.cuda_graphs",
                   "cannot include sums over ranks, which parallel.tensor_parallel_degree = {} has inside layers; set "
                   "1 there, or false here",
                   degree);
  if (const int64_t stages = config.parallel.pipeline_parallel_degree; stages > 1)
    return problem(config, "run.cuda_graphs",
                   "does not work for stages that wait for one another's messages, and "
                   "parallel.pipeline_parallel_degree = {}; set 1 there, or false here",
                   stages);
  return {};
}

Found check_trace(const Config& config) {
  const std::string& text = config.train.trace_steps;
  if (text.empty()) return {};
  const std::optional<StepRange> steps = step_range(text);
  if (!steps) return problem(config, "train.trace_steps", "is not a step, as 10, or a range of steps, as 10-12");
  if (steps->last > config.train.steps)
    return problem(config, "train.trace_steps", "is beyond train.steps = {}; name earlier ones, or raise that",
                   config.train.steps);
  return {};
}

// Half of all norms are above the median.
Found check_skipping(const Config& config) {
  const double above = config.train.skip_norm_above;
  if (above > 0 && above <= 1)
    return problem(config, "train.skip_norm_above",
                   "would skip half of all normal steps; set more than 1, such as 10, or 0 to skip none");
  return {};
}

Found check_communication(const Config& config) {
  if (config.communication.backend == Backend::mpi && !config.communication.rendezvous.empty())
    return problem(
        config, "communication.rendezvous",
        "is for ranks started without MPI, but communication.backend = \"mpi\" needs MPI; leave it empty, or set nccl");
  return {};
}

}  // namespace

std::vector<int64_t> nearest(std::vector<int64_t> values, int64_t x, size_t most) {
  std::stable_sort(values.begin(), values.end(),
                   [x](int64_t a, int64_t b) { return std::abs(a - x) < std::abs(b - x); });
  values.resize(std::min(values.size(), most));
  std::sort(values.begin(), values.end());
  return values;
}

std::optional<Problem> first_problem(const Config& config) {
  // check_values comes first: the others divide by values that it has found positive.
  for (const auto check :
       {check_values, check_model, check_shapes, check_tensor_parallel, check_sizes, check_pipeline,
        check_layers_per_stage, check_sharding, check_placement, check_memory, precision_problem, optimizer_problem,
        check_run, check_cuda_graphs, check_trace, check_skipping, check_communication, trained_problem})
    if (Found found = check(config)) return found;
  return {};
}

void check_shape(const ModelConfig& model, const std::string& source) {
  Config config;
  config.model = model;
  for (const std::string& key : shape_keys()) {
    const Field* field = find_field("model." + key);
    const std::string wrong = value_problem(*field, field->get(config));
    CHECK(wrong.empty(), "{}: the model has {} = {}, which {}", source, key, toml_text(field->get(config)), wrong);
  }
  CHECK(model.vocab > 0, "{}: the model has vocab = 0, and so no tokens", source);
  CHECK(model.head_size > 0 || model.hidden % model.heads == 0,
        "{}: the model has {} heads, which do not divide its width of {}", source, model.heads, model.hidden);
  if (const Found found = check_model(config)) FAIL("{}: {}", source, found->message);
}

void validate(const Config& config) {
  if (const Found found = first_problem(config)) FAIL("{}", found->message);
}

bool is_valid(const Config& config) { return !first_problem(config); }

std::vector<int64_t> layers_per_stage(const Config& config) {
  std::vector<int64_t> counts;
  for (const std::string& word : words_of(config.parallel.layers_per_stage))
    counts.push_back(layer_count(word, config.model.layers));
  return counts;
}

Config resolve(Config config) {
  if (config.batch.sequence_length == 0) config.batch.sequence_length = config.model.context;
  if (config.optimizer.decay_steps == 0)
    config.optimizer.decay_steps =
        std::max({config.train.steps, config.optimizer.warmup_steps, config.optimizer.decay_begin});
  if (config.checkpoint.directory.empty() && !config.run.output.empty())
    config.checkpoint.directory = config.run.output + "/checkpoints";
  config.model.adapter = config.adapter;
  config.model.freeze = config.train.freeze;
  return config;
}

}  // namespace megalith
