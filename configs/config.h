// Config: every option of a run, validated before any device is opened.
//
// A Config is a plain value, made from text: a TOML file and `section.key=value` overrides. Members have the defaults;
// field_table.cpp declares each key once (unit, range, choices, sentence), and reading, printing, the option list and
// the error messages use that table.
//
// load_config and parse_config return a resolved and validated Config. No default is derived later, except model.vocab
// = 0 and data.end_of_text = -1, which need the tokenizer and are set by the trainer. Neither opens any file but the
// TOML file (they look at the other names in its folder), and neither knows the number of ranks; rules that need data
// or ranks belong to the trainer. Errors name source:line, the key, the value and the remedy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/choices.h"

namespace megalith {

enum class ShardingStrategy { full_shard, shard_grad_op, shard_optimizer, no_shard };
constexpr auto words_of(ShardingStrategy) {
  return words("full_shard", "shard_grad_op", "shard_optimizer", "no_shard");
}
enum class PipelineSchedule { one_f_one_b, gpipe, zb_h1, zb_v, v_half };
constexpr auto words_of(PipelineSchedule) { return words("1f1b", "gpipe", "zb_h1", "zb_v", "v_half"); }
// Return whether backward passes have two halves, and whether the two chunks of layers of each rank form a V: from the
// first pipeline rank to the last, and back.
constexpr bool has_halves(PipelineSchedule kind) { return kind >= PipelineSchedule::zb_h1; }
constexpr bool is_v_shaped(PipelineSchedule kind) { return kind >= PipelineSchedule::zb_v; }
enum class ComputeType { bf16, fp16, fp32 };
constexpr auto words_of(ComputeType) { return words("bf16", "fp16", "fp32"); }
enum class StorageType { fp32, bf16 };
constexpr auto words_of(StorageType) { return words("fp32", "bf16"); }
enum class ProductType { compute, fp8 };
constexpr auto words_of(ProductType) { return words("compute", "fp8"); }
enum class ResidualType { compute, fp32 };
constexpr auto words_of(ResidualType) { return words("compute", "fp32"); }
enum class Decay { cosine, linear, constant, sqrt };
constexpr auto words_of(Decay) { return words("cosine", "linear", "constant", "sqrt"); }
enum class Algorithm { adamw, muon };
constexpr auto words_of(Algorithm) { return words("adamw", "muon"); }
enum class Device { automatic, cuda, cpu };
constexpr auto words_of(Device) { return words("auto", "cuda", "cpu"); }
enum class Backend { nccl, mpi };
constexpr auto words_of(Backend) { return words("nccl", "mpi"); }
enum class SymmetricMemory { off, kernels, copy_engines };
constexpr auto words_of(SymmetricMemory) { return words("off", "kernels", "copy_engines"); }
enum class NormKind { layer, rms };
constexpr auto words_of(NormKind) { return words("layer", "rms"); }
enum class Positions { learned, rotary };
constexpr auto words_of(Positions) { return words("learned", "rotary"); }
enum class Activation { gelu, gelu_erf, swiglu };
constexpr auto words_of(Activation) { return words("gelu", "gelu_erf", "swiglu"); }

// The activations that backward recomputes: written "none", "selective", "each", "group_4", "contiguous".
struct ActivationCheckpointing {
  enum class Kind { none, selective, each, group, contiguous };
  Kind kind = Kind::none;
  int64_t group_size = 0;  // layers a group; 0 unless kind is group
  bool operator==(const ActivationCheckpointing&) const = default;
};
std::string to_string(const ActivationCheckpointing& value);
template <>
std::vector<std::string> choice_words<ActivationCheckpointing>();
template <>
std::optional<ActivationCheckpointing> parse_choice<ActivationCheckpointing>(std::string_view word);

// Low-rank adapters of frozen linear layers (Hu et al., LoRA, arXiv 2106.09685): scale() * B A x is added to the
// output, A (rank, in) and B (out, rank).
struct AdapterConfig {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 16.0;
  double dropout = 0.0;                       // probability for A's input
  std::string target_modules = "all-linear";  // one word, or several, each on a line (adapter.h)
  std::string init_from;                      // empty: A random, B zero
  bool in_use() const { return rank > 0; }
  int64_t inner() const { return rank; }  // features between the two matrices
  double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const AdapterConfig&) const = default;
};

struct ModelConfig {
  int64_t layers = 12;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t vocab = 0;  // 0: the tokenizer's, set by the trainer
  int64_t context = 1024;
  double dropout = 0.0;
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  bool bias = true;      // linear layers except q, k, v
  bool qkv_bias = true;  // the layers q, k, v
  bool tied_head = true;
  Activation activation = Activation::gelu;
  int64_t feed_forward = 0;     // 0: 4 * hidden
  int64_t key_value_heads = 0;  // 0: heads
  int64_t head_size = 0;        // 0: hidden / heads
  Positions positions = Positions::learned;
  double rotary_base = 10000.0;
  double rotary_share = 1.0;   // share of a head's features
  double rotary_factor = 1.0;  // 1: unscaled frequencies; else Llama 3's scaling, with the next three
  double rotary_low = 1.0;
  double rotary_high = 4.0;
  int64_t rotary_context = 8192;
  bool query_key_norm = false;
  bool parallel_residual = false;
  double initial_std = 0.02;
  double initial_output_std = 0;  // 0: initial_std / sqrt(2 * layers)
  // Not keys of [model]: resolve() copies [adapter] and train.freeze.
  AdapterConfig adapter{};
  std::string freeze{};

  int64_t size_of_head() const { return head_size > 0 ? head_size : hidden / heads; }
  int64_t kv_heads() const { return key_value_heads > 0 ? key_value_heads : heads; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads()) * size_of_head(); }
  // Returns how many of a head's features are turned, the first ones; rounded down as in `transformers`.
  int64_t rotary_features() const { return static_cast<int64_t>(static_cast<double>(size_of_head()) * rotary_share); }
  int64_t rotary_pairs() const { return rotary_features() / 2; }
  int64_t features() const {
    return feed_forward > 0 ? feed_forward : 4 * hidden;
  }  // width inside a feed-forward layer
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train;       // file, prefix or glob; or several with weights, each on a line (data/samples/sources.h)
  std::string validation;  // as train, or several sets NAME=SOURCE, each on a line (data/samples/sources.h)
  std::string tokenizer;
  bool shuffle = true;
  int64_t seed = 1;
  bool isolate_documents = false;
  int64_t end_of_text = -1;  // a token; -1: the tokenizer's, set by the trainer for isolate_documents
  bool allow_overlap = false;
  bool pack = true;     // examples of masked tokens share sequences
  bool masked = false;  // not all tokens count; set by the trainer from the token files
  bool operator==(const DataConfig&) const = default;
};

struct BatchConfig {
  int64_t sequence_length = 0;    // tokens; never 0 once resolved
  int64_t global_batch_size = 8;  // sequences an update, over all ranks
  int64_t microbatch_size = 1;    // sequences a forward pass of a tensor-parallel group
  bool operator==(const BatchConfig&) const = default;
};

struct ParallelConfig {
  int64_t tensor_parallel_degree = 1;
  bool sequence_parallel = false;
  int64_t tensor_pieces = 0;  // 0: transfers of the tensor-parallel group do not overlap with products
  int64_t pipeline_parallel_degree = 1;
  int64_t virtual_stages = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_f_one_b;
  int64_t active_microbatches = 0;  // 0: as needed by the schedule
  std::string layers_per_stage;     // "5 6 5": by virtual stage, in the order of the model; empty: balanced
  ShardingStrategy sharding_strategy = ShardingStrategy::full_shard;
  int64_t sharded_data_parallel_degree = 0;  // 0: all data-parallel ranks
  bool hierarchical_allgather = false;
  int64_t max_live_parameters = 0;  // 0: the current layer and the next one
  int64_t replicate_below = 0;
  bool prescaled_batch = true;
  std::string placement = "tensor shard data pipeline";  // innermost first
  int64_t ranks_per_node = 0;                            // 0: as launched; when planning, the profile's, or 8
  bool operator==(const ParallelConfig&) const = default;
};

struct MemoryConfig {
  ActivationCheckpointing activation_checkpointing;
  bool offload_activations = false;
  int64_t activation_loading_horizon = 1;
  double offload_optimizer = 0.0;  // share of its state
  bool offload_parameters = false;
  int64_t lm_head_chunks = 0;  // 0: chosen from the shapes
  bool operator==(const MemoryConfig&) const = default;
};

struct PrecisionConfig {
  ComputeType compute = ComputeType::fp32;
  ProductType products = ProductType::compute;
  int64_t first_layers_in_bf16 = 0, last_layers_in_bf16 = 0;  // whose products are not in fp8
  ResidualType residual = ResidualType::compute;
  StorageType master = StorageType::fp32;
  StorageType moments = StorageType::fp32;
  StorageType gradient_reduce = StorageType::fp32;
  bool stochastic_rounding = false;
  double loss_scale = 0.0;  // fp16 only; 0: dynamic, by the keys below
  double initial_loss_scale = 65536.0;
  int64_t loss_scale_window = 1000;
  int64_t delayed_shift = 2;
  double minimum_loss_scale = 1.0;
  bool operator==(const PrecisionConfig&) const = default;
};

struct OptimizerConfig {
  Algorithm algorithm = Algorithm::adamw;
  double learning_rate = 6e-4;
  double min_learning_rate = 0.0;
  int64_t warmup_steps = 0;
  Decay decay = Decay::cosine;
  int64_t decay_begin = 0;  // the step, counted from the start, that is the last with the whole rate; 0: warmup_steps
  int64_t decay_steps = 0;  // the step, counted from the start, that reaches min_learning_rate; never 0 once resolved
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double gradient_clip = 1.0;  // 0: off
  // The rates of matrices that Muon updates; 0: learning_rate and min_learning_rate.
  double muon_learning_rate = 0.0, muon_min_learning_rate = 0.0;
  bool operator==(const OptimizerConfig&) const = default;
};

// Returns the config with the learning rates of the matrices that Muon updates.
OptimizerConfig muon_rates(OptimizerConfig config);

struct TrainConfig {
  int64_t steps = 1000;
  // 0: no limit. Otherwise the run ends, as if finished, with the update that exceeds it, or two updates later on GPUs,
  // whose results the host reads one step late.
  double minutes = 0.0;
  int64_t seed = 1;
  int64_t evaluate_every = 0;  // 0: only at the end
  int64_t evaluate_batches = 20;
  int64_t early_stopping_patience = 0;  // evaluations without improvement; 0: off
  int64_t max_bad_steps = 3;            // in a row; then the run ends
  double skip_norm_above = 0.0;         // times the running median; 0: off
  std::string trace_steps;              // as step_range.h reads it; empty: none
  int64_t log_every = 0;                // steps; 0: by time
  std::string freeze;                   // one word, or several, each on a line (adapter.h); empty: none
  int64_t sample_every = 0;             // updates; 0: no texts
  // A list: each prompt and a newline. Without a newline: a file's name. Empty: one empty prompt.
  std::string sample_prompts;
  int64_t sample_tokens = 64;
  double sample_temperature = 0.8;
  int64_t sample_top_k = 50;  // 0: all
  double sample_top_p = 1.0;
  bool operator==(const TrainConfig&) const = default;
};

struct CheckpointConfig {
  std::string directory;    // never empty once resolved
  int64_t every = 0;        // updates; 0: not by number
  double minutes = 30.0;    // since the last one; 0: not by time
  double patience = 240.0;  // minutes without a checkpoint if none can be written
  bool asynchronous = true;
  double on_signal_seconds = 120.0;
  int64_t keep = 0;             // 0: all
  int64_t keep_every = 0;       // steps; 0: no checkpoint is kept for good
  bool keep_best = false;       // the one with the lowest validation loss
  int64_t settle = 100;         // steps; 0: a checkpoint counts as good when it is written
  std::string resume = "auto";  // "auto", "best", "never" or the path of a checkpoint
  bool allow_changes = false;
  std::string init_from;  // empty: initial weights from train.seed
  bool operator==(const CheckpointConfig&) const = default;
};

struct RunConfig {
  std::string output = "runs/default";
  Device device = Device::automatic;
  bool tensorboard = false;
  bool cuda_graphs = false;
  bool operator==(const RunConfig&) const = default;
};

struct CommunicationConfig {
  std::string rendezvous;  // empty: MPI started the ranks
  Backend backend = Backend::nccl;
  int64_t max_ctas = 0;  // 0: NCCL's choice, and 4 for messages and for groups of all ranks
  bool nvls = false;
  SymmetricMemory symmetric_memory = SymmetricMemory::off;
  double timeout = 600.0;  // seconds; 0: none
  bool operator==(const CommunicationConfig&) const = default;
};

// The machines for which `megalith plan` and `search` plan; a run inspects its own.
struct HardwareConfig {
  std::string profile;  // a known name, as p4d.24xlarge, or a file (hardware.h)
  int64_t nodes = 1;
  int64_t devices_per_node = 0;  // 0: the profile's
  bool operator==(const HardwareConfig&) const = default;
};

struct Config {
  ModelConfig model;
  AdapterConfig adapter;
  DataConfig data;
  BatchConfig batch;
  ParallelConfig parallel;
  MemoryConfig memory;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  TrainConfig train;
  CheckpointConfig checkpoint;
  RunConfig run;
  CommunicationConfig communication;
  HardwareConfig hardware;
  bool operator==(const Config&) const = default;
};

// Reads a file, applies the overrides ("section.key=value", later ones win), resolves and validates. A value is read as
// TOML; text that is not TOML is a string, so paths and choices need no quotes. A run folder means its config.toml, and
// a config.toml in a run folder means that folder, wherever it has moved. The functions below do the same. With an
// empty path all keys have their defaults.
Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides = {});

// The keys of [model] that existing weights determine.
struct KnownShape {
  std::string source;  // the weights' name in messages
  ModelConfig model;
  std::optional<double> dropout = 0;  // the default of model.dropout; nullopt: it must be set
};

// As above for given weights, which determine unset keys of the shape. One Error names all keys with other values.
Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides, const KnownShape& known);

// Reads only [run] and [checkpoint], to find the initial weights. Unreadable keys keep their defaults.
Config load_places(const std::string& toml_path, const std::vector<std::string>& overrides);

// As load_config, from text. source_name names the file in messages.
Config parse_config(std::string_view toml, std::string_view source_name,
                    const std::vector<std::string>& overrides = {});

// Reads only [communication], whatever errors the rest has: ranks need it to connect, and then report errors together.
// Unreadable keys keep their defaults.
CommunicationConfig load_communication(const std::string& toml_path, const std::vector<std::string>& overrides);

// Sets the keys whose default is another key: batch.sequence_length, optimizer.decay_steps, checkpoint.directory.
Config resolve(Config config);

// Checks the rules between keys, and the ranges of single keys, so that a Config built in code is as safe as one from a
// file.
void validate(const Config& config);
bool is_valid(const Config& config);

// Returns parallel.layers_per_stage of a valid Config: at least 1 for each (virtual) stage; empty if it is not set.
std::vector<int64_t> layers_per_stage(const Config& config);

// Prints every key, value and sentence. parse_config(to_toml(c), ...) == resolve(c), to the last bit of a double.
std::string to_toml(const Config& config);

// Returns whether to_toml may have written this text: reading and writing it again loses nothing.
bool is_generated(const std::string& toml);

// Returns the keys and values of to_toml as a map from "section.key" to the value.
std::map<std::string, std::string> key_values(const Config& config);

// Error if a size of the shape is outside the range of its key of [model]; call it before making as many layers.
// `source` is the file it was read from.
void check_shape(const ModelConfig& model, const std::string& source);

// Returns whether a model that starts from the weights of a base may have another value of this key: more tokens, whose
// rows are added to the embedding, or a longer context of rotary positions.
bool may_grow(const std::string& key, const ModelConfig& base, const ModelConfig& here);

// The keys of [model] that are the shape of a model, in the table's order: all except its dropout and its initial
// values, which may change from run to run.
const std::vector<std::string>& shape_keys();
// Returns the value of such a key as to_toml writes it, which is also JSON; set_shape_value sets it from that. Error,
// with `source`: the key has no such value.
std::string shape_value(const ModelConfig& model, const std::string& key);
void set_shape_value(ModelConfig& model, const std::string& key, const std::string& value, const std::string& source);

// Returns the words of an option, as "none", "group_N" or "true"; empty if it is not a choice. Error: unknown key.
std::vector<std::string> choices_of(const std::string& key);

// Describes every option, or those of one section or key ("section.key" or only the key): default, unit, range or
// choices, sentence. Error: no option has that name.
std::string describe_options(const std::string& only = "");

// Describes every option as a page in Markdown, which configs/OPTIONS.md holds.
std::string options_page();

}  // namespace megalith
