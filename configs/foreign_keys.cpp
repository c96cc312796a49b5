#include "configs/foreign_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {
namespace {

constexpr std::string_view sagemaker = "SageMaker", megatron = "Megatron-LM", deepspeed = "DeepSpeed",
                           nanogpt = "nanoGPT", transformers = "transformers", torchtitan = "torchtitan",
                           litgpt = "LitGPT", axolotl = "axolotl", trl = "TRL", peft = "PEFT",
                           config_json = "a model's config.json";

constexpr std::string_view microbatch_size =
    "not set but follows from `batch.microbatch_size`, the sequences of one of them";
constexpr std::string_view accumulation =
    "not set but follows from `batch.global_batch_size` and `batch.microbatch_size`";
constexpr std::string_view no_such_model = "not supported: every token passes all parts of a model";
constexpr std::string_view of_compute = "a value of `precision.compute`";
constexpr std::string_view epochs =
    "not set: `train.steps` counts updates, and the log of a run says how many epochs they are";
constexpr std::string_view warmup_share = "not set as a share: `optimizer.warmup_steps` counts updates";
constexpr std::string_view curves =
    "not supported: `run.tensorboard` writes files that TensorBoard shows and `wandb sync` uploads, and `megalith "
    "report` draws the curves";
constexpr std::string_view recompute = "`memory.activation_checkpointing`";
constexpr std::string_view no_quantization =
    "not supported: frozen weights are in the type of `precision.master`, which may be bf16";
constexpr std::string_view fused = "not needed: all kernels are compiled and fused in advance";
constexpr std::string_view of_prepare = "an option of `megalith prepare`, which tokenizes the texts before training";
constexpr std::string_view no_best_checkpoint =
    "not supported: metrics.jsonl has the validation loss of each evaluation, and `checkpoint.keep_every` keeps "
    "checkpoints for good";
constexpr std::string_view of_launch = "not set: the launcher decides, as in `megalith run -n 8`, or mpirun";

constexpr ForeignKey all[] = {
    // https://docs.aws.amazon.com/sagemaker/latest/dg/distributed-model-parallel-v2-reference.html and its version 1.
    {sagemaker, "hybrid_shard_degree", "`parallel.sharded_data_parallel_degree`"},
    {sagemaker, "sm_activation_offloading", "`memory.offload_activations`"},
    {sagemaker, "partitions", "`parallel.pipeline_parallel_degree`"},
    {sagemaker, "microbatches", microbatch_size},
    {sagemaker, "placement_strategy", "`parallel.placement`"},
    {sagemaker, "shard_optimizer_state", "`parallel.sharding_strategy`, with the value shard_optimizer"},
    {sagemaker, "pipeline", "`parallel.pipeline_schedule`"},
    {sagemaker, "auto_partition",
     "not needed: layers are balanced over the stages unless `parallel.layers_per_stage` is set"},
    {sagemaker, "default_partition", "not supported: `parallel.layers_per_stage` places the layers"},
    {sagemaker, "sdp_max_live_parameters", "`parallel.max_live_parameters`"},
    {sagemaker, "sdp_param_persistence_threshold", "`parallel.replicate_below`"},
    {sagemaker, "sdp_hierarchical_allgather", "`parallel.hierarchical_allgather`"},
    {sagemaker, "sdp_gradient_clipping", "`optimizer.gradient_clip`"},
    {sagemaker, "sdp_reduce_bucket_size",
     "not needed: each layer's gradients are reduced as soon as they are complete"},
    {sagemaker, "fp16_params", of_compute},
    {sagemaker, "fp8", "not supported: `precision.compute` is bf16, fp16 or fp32"},
    {sagemaker, "ddp", "not needed: the ranks that remain after the other degrees of [parallel] are data parallel"},
    {sagemaker, "tensor_parallel_seed",
     "not needed: random numbers follow from `train.seed` and do not depend on the layout"},
    {sagemaker, "random_seed", "`train.seed` for weights and dropout, and `data.seed` for the order of samples"},
    {sagemaker, "skip_tracing", "not needed: nothing is traced"},
    {sagemaker, "trace_device", "not needed: nothing is traced"},
    {sagemaker, "delayed_parameter_initialization", "not needed: each rank makes only its own part of the weights"},
    {sagemaker, "backward_passes_per_step", accumulation},
    {sagemaker, "checkpoint_local_path", "`checkpoint.directory`"},
    {sagemaker, "checkpoint_s3_uri",
     "not supported: `checkpoint.directory` is a folder of a file system that all ranks see"},
    {sagemaker, "scale_window", "`precision.loss_scale_window`"},
    {sagemaker, "min_scale", "`precision.minimum_loss_scale`"},
    {sagemaker, "context_parallel_degree",
     "not supported: `parallel.tensor_parallel_degree` with `parallel.sequence_parallel` splits the sequence outside "
     "of attention"},
    {sagemaker, "expert_parallel_degree", no_such_model},
    {sagemaker, "num_layers", "`model.layers`"},
    {sagemaker, "hidden_width", "`model.hidden`"},
    {sagemaker, "num_heads", "`model.heads`"},
    {sagemaker, "max_context_width", "`model.context`"},
    {sagemaker, "train_batch_size", "`batch.global_batch_size`"},
    // megatron/training/arguments.py
    {megatron, "tensor_model_parallel_size", "`parallel.tensor_parallel_degree`"},
    {megatron, "tp_comm_overlap", "`parallel.tensor_pieces`"},
    {megatron, "pipeline_model_parallel_size", "`parallel.pipeline_parallel_degree`"},
    {megatron, "num_layers_per_virtual_pipeline_stage", "not set: `parallel.virtual_stages` counts a rank's stages"},
    {megatron, "num_virtual_stages_per_pipeline_rank", "`parallel.virtual_stages`"},
    {megatron, "context_parallel_size",
     "not supported: `parallel.sequence_parallel` splits the sequence outside of attention"},
    {megatron, "expert_model_parallel_size", no_such_model},
    {megatron, "num_experts", no_such_model},
    {megatron, "micro_batch_size", "`batch.microbatch_size`"},
    {megatron, "seq_length", "`batch.sequence_length`"},
    {megatron, "max_position_embeddings", "`model.context`"},
    {megatron, "hidden_size", "`model.hidden`"},
    {megatron, "ffn_hidden_size", "`model.feed_forward`"},
    {megatron, "num_attention_heads", "`model.heads`"},
    {megatron, "padded_vocab_size", "`model.vocab`"},
    {megatron, "make_vocab_size_divisible_by", "not needed: any `model.vocab` is split over any number of ranks"},
    {megatron, "attention_dropout", "`model.dropout`"},
    {megatron, "hidden_dropout", "`model.dropout`"},
    {megatron, "use_distributed_optimizer", "`parallel.sharding_strategy`, with the value shard_optimizer"},
    {megatron, "data_parallel_sharding_strategy", "`parallel.sharding_strategy`"},
    {megatron, "overlap_grad_reduce", "not needed: transfers always overlap with computation"},
    {megatron, "overlap_param_gather", "not needed: transfers always overlap with computation"},
    {megatron, "recompute_granularity", "`memory.activation_checkpointing`"},
    {megatron, "recompute_method", "`memory.activation_checkpointing`"},
    {megatron, "recompute_num_layers", "`memory.activation_checkpointing`, with the value group_N"},
    {megatron, "optimizer_cpu_offload", "`memory.offload_optimizer`"},
    {megatron, "lr", "`optimizer.learning_rate`"},
    {megatron, "min_lr", "`optimizer.min_learning_rate`"},
    {megatron, "lr_decay_style", "`optimizer.decay`"},
    {megatron, "lr_decay_iters", "`optimizer.decay_steps`"},
    {megatron, "lr_warmup_iters", "`optimizer.warmup_steps`"},
    {megatron, "adam_beta1", "`optimizer.beta1`"},
    {megatron, "adam_beta2", "`optimizer.beta2`"},
    {megatron, "adam_eps", "`optimizer.epsilon`"},
    {megatron, "clip_grad", "`optimizer.gradient_clip`"},
    {megatron, "train_iters", "`train.steps`"},
    {megatron, "exit_duration_in_mins", "`train.minutes`"},
    {megatron, "eval_interval", "`train.evaluate_every`"},
    {megatron, "eval_iters", "`train.evaluate_batches`"},
    {megatron, "log_interval", "`train.log_every`"},
    {megatron, "save", "`checkpoint.directory`"},
    {megatron, "load", "`checkpoint.resume`"},
    {megatron, "save_interval", "`checkpoint.every`"},
    {megatron, "pretrained_checkpoint", "`checkpoint.init_from`"},
    {megatron, "async_save", "`checkpoint.asynchronous`"},
    {megatron, "data_path", "`data.train`"},
    {megatron, "train_data_path", "`data.train`"},
    {megatron, "valid_data_path", "`data.validation`"},
    {megatron, "tokenizer_model", "`data.tokenizer`"},
    {megatron, "tokenizer_type", "`data.tokenizer`"},
    {megatron, "reset_position_ids", "`data.isolate_documents`"},
    {megatron, "reset_attention_mask", "`data.isolate_documents`"},
    {megatron, "min_loss_scale", "`precision.minimum_loss_scale`"},
    {megatron, "hysteresis", "`precision.delayed_shift`"},
    {megatron, "accumulate_allreduce_grads_in_fp32",
     "not needed: gradients are added in fp32, whatever `precision.gradient_reduce` is"},
    {megatron, "fp32_residual_connection", "`precision.residual`, fp32"},
    {megatron, "distributed_timeout_minutes", "`communication.timeout`, in seconds"},
    {megatron, "distributed_backend", "`communication.backend`"},
    {megatron, "tensorboard_dir", "not set: `run.tensorboard` writes into tensorboard/ of `run.output`"},
    {megatron, "bf16", of_compute},
    {megatron, "fp16", of_compute},
    // https://www.deepspeed.ai/docs/config-json
    {deepspeed, "gradient_accumulation_steps", accumulation},
    {deepspeed, "train_micro_batch_size_per_gpu", "`batch.microbatch_size`"},
    {deepspeed, "zero_optimization", "`parallel.sharding_strategy`"},
    {deepspeed, "stage3_max_live_parameters", "`parallel.max_live_parameters`"},
    {deepspeed, "stage3_param_persistence_threshold", "`parallel.replicate_below`"},
    {deepspeed, "gradient_clipping", "`optimizer.gradient_clip`"},
    {deepspeed, "offload_param", "`memory.offload_parameters`"},
    {deepspeed, "initial_scale_power", "`precision.initial_loss_scale`, the scale itself"},
    // configurator.py and train.py of nanoGPT
    {nanogpt, "n_layer", "`model.layers`"},
    {nanogpt, "n_head", "`model.heads`"},
    {nanogpt, "n_embd", "`model.hidden`"},
    {nanogpt, "block_size", "`model.context`"},
    {nanogpt, "batch_size", "`batch.microbatch_size` for a rank, and `batch.global_batch_size` for an update"},
    {nanogpt, "max_iters", "`train.steps`"},
    {nanogpt, "warmup_iters", "`optimizer.warmup_steps`"},
    {nanogpt, "dtype", "`precision.compute`"},
    {nanogpt, "out_dir", "`run.output`"},
    {nanogpt, "grad_clip", "`optimizer.gradient_clip`"},
    {nanogpt, "decay_lr", "`optimizer.decay`, with the value constant for false"},
    {nanogpt, "eval_only", "a command: `megalith evaluate FOLDER --data FILE`"},
    {nanogpt, "always_save_checkpoint", no_best_checkpoint},
    {nanogpt, "dataset", "`data.train` and `data.validation`"},
    {nanogpt, "compile", fused},
    {nanogpt, "wandb_log", curves},
    {nanogpt, "wandb_run_name", curves},
    // TrainingArguments and GPT2Config of transformers
    {transformers, "max_steps", "`train.steps`"},
    {transformers, "per_device_train_batch_size", "`batch.microbatch_size`"},
    {transformers, "max_grad_norm", "`optimizer.gradient_clip`"},
    {transformers, "eval_steps", "`train.evaluate_every`"},
    {transformers, "save_steps", "`checkpoint.every`"},
    {transformers, "save_total_limit", "`checkpoint.keep`"},
    {transformers, "logging_steps", "`train.log_every`"},
    {transformers, "resume_from_checkpoint", "`checkpoint.resume`"},
    {transformers, "output_dir", "`run.output`"},
    {transformers, "vocab_size", "`model.vocab`"},
    {transformers, "n_positions", "`model.context`"},
    {transformers, "num_train_epochs", epochs},
    {transformers, "lr_scheduler_type", "`optimizer.decay`"},
    {transformers, "warmup_ratio", warmup_share},
    {transformers, "report_to", curves},
    {transformers, "eval_strategy", "`train.evaluate_every`, in updates"},
    {transformers, "evaluation_strategy", "`train.evaluate_every`, in updates"},
    {transformers, "save_strategy", "`checkpoint.every`, in updates, and `checkpoint.minutes`"},
    {transformers, "per_device_eval_batch_size", "not set: evaluations use `batch.microbatch_size`"},
    {transformers, "gradient_checkpointing", recompute},
    {transformers, "adam_epsilon", "`optimizer.epsilon`"},
    {transformers, "optim", "`optimizer.algorithm`"},
    {transformers, "data_seed", "`data.seed`"},
    {transformers, "fsdp", "`parallel.sharding_strategy`"},
    {transformers, "ddp_timeout", "`communication.timeout`"},
    {transformers, "ddp_backend", "`communication.backend`"},
    {transformers, "dataloader_num_workers", "not needed: tokens are read from mapped files"},
    {transformers, "group_by_length", "not needed: `data.pack` packs examples, and other tokens have no padding"},
    {transformers, "torch_compile", fused},
    {transformers, "load_best_model_at_end", no_best_checkpoint},
    {transformers, "metric_for_best_model", no_best_checkpoint},
    {transformers, "early_stopping_patience", no_best_checkpoint},
    {transformers, "push_to_hub",
     "not supported: `megalith checkpoint export` writes the folder, and `hf upload` uploads it"},
    {transformers, "logging_dir", "not set: `run.tensorboard` writes into tensorboard/ of `run.output`"},
    {transformers, "model_name_or_path", "`checkpoint.init_from`, the model's folder"},
    {transformers, "label_smoothing_factor", "not supported: the loss is the cross-entropy of the next token"},
    {transformers, "max_seq_length", "`batch.sequence_length`"},
    // config.json of Llama, Mistral, Qwen, Mixtral and GPT-NeoX
    {config_json, "num_hidden_layers", "`model.layers`"},
    {config_json, "intermediate_size", "`model.feed_forward`"},
    {config_json, "num_key_value_heads", "`model.key_value_heads`"},
    {config_json, "head_dim", "`model.head_size`"},
    {config_json, "rope_theta", "`model.rotary_base`"},
    {config_json, "rope_scaling",
     "`model.rotary_factor`, `model.rotary_low`, `model.rotary_high` and `model.rotary_context`"},
    {config_json, "partial_rotary_factor", "`model.rotary_share`"},
    {config_json, "rotary_pct", "`model.rotary_share`"},
    {config_json, "rms_norm_eps", "`model.norm_epsilon`"},
    {config_json, "layer_norm_eps", "`model.norm_epsilon`"},
    {config_json, "layer_norm_epsilon", "`model.norm_epsilon`"},
    {config_json, "hidden_act", "`model.activation`"},
    {config_json, "activation_function", "`model.activation`"},
    {config_json, "tie_word_embeddings", "`model.tied_head`"},
    {config_json, "attention_bias", "`model.bias` and `model.qkv_bias`"},
    {config_json, "use_parallel_residual", "`model.parallel_residual`"},
    {config_json, "initializer_range", "`model.initial_std`"},
    {config_json, "resid_pdrop", "`model.dropout`"},
    {config_json, "attn_pdrop", "`model.dropout`"},
    {config_json, "sliding_window", "not supported: attention always reads the whole sequence"},
    {config_json, "experts", no_such_model},
    {config_json, "num_local_experts", no_such_model},
    {config_json, "num_experts_per_tok", no_such_model},
    // LoraConfig of PEFT, and the same of LitGPT and axolotl
    {peft, "r", "`adapter.rank`"},
    {peft, "lora_r", "`adapter.rank`"},
    {peft, "lora_alpha", "`adapter.alpha`"},
    {peft, "lora_dropout", "`adapter.dropout`"},
    {peft, "lora_target_modules", "`adapter.target_modules`"},
    {peft, "lora_target_linear", "`adapter.target_modules`, with the value all-linear"},
    {peft, "modules_to_save", "not supported: all weights but the adapters are frozen"},
    {peft, "use_dora", "not supported: adapters are low-rank matrices"},
    {peft, "use_rslora", "not supported: `adapter.alpha` can be multiplied by the square root of the rank"},
    {peft, "load_in_4bit", no_quantization},
    {peft, "load_in_8bit", no_quantization},
    {peft, "quantize", no_quantization},
    // torchtitan/config
    {torchtitan, "seq_len", "`batch.sequence_length`"},
    {torchtitan, "local_batch_size", "`batch.microbatch_size`, of one microbatch"},
    {torchtitan, "max_norm", "`optimizer.gradient_clip`"},
    {torchtitan, "mixed_precision_param", "`precision.compute`"},
    {torchtitan, "mixed_precision_reduce", "`precision.gradient_reduce`"},
    {torchtitan, "dataset_path", "`data.train`"},
    {torchtitan, "hf_assets_path", "`data.tokenizer`"},
    {torchtitan, "tokenizer_path", "`data.tokenizer`"},
    {torchtitan, "flavor", "not set: `checkpoint.init_from` or the keys of [model], such as `model.layers`"},
    {torchtitan, "dump_folder", "`run.output`"},
    {torchtitan, "log_freq", "`train.log_every`"},
    {torchtitan, "enable_tensorboard", "`run.tensorboard`"},
    {torchtitan, "enable_wandb", curves},
    {torchtitan, "enable_profiling", "`train.trace_steps`"},
    {torchtitan, "profile_freq", "`train.trace_steps`"},
    {torchtitan, "decay_ratio",
     "not set as a share: `optimizer.decay_begin` and `optimizer.decay_steps` count updates"},
    {torchtitan, "decay_type", "`optimizer.decay`"},
    {torchtitan, "min_lr_factor", "not set as a share: `optimizer.min_learning_rate` is the rate itself"},
    {torchtitan, "data_parallel_replicate_degree",
     "not set but follows from `parallel.sharded_data_parallel_degree` and the ranks"},
    {torchtitan, "data_parallel_shard_degree", "`parallel.sharded_data_parallel_degree`"},
    {torchtitan, "pipeline_parallel_schedule", "`parallel.pipeline_schedule`"},
    {torchtitan, "pipeline_parallel_microbatch_size", "`batch.microbatch_size`"},
    {torchtitan, "enable_async_tensor_parallel", "`parallel.tensor_pieces`"},
    {torchtitan, "fsdp_reshard_after_forward",
     "`parallel.sharding_strategy`, with the value full_shard for true and shard_grad_op for false"},
    {torchtitan, "interval", "`checkpoint.every`"},
    {torchtitan, "keep_latest_k", "`checkpoint.keep`"},
    {torchtitan, "async_mode", "`checkpoint.asynchronous`"},
    {torchtitan, "load_step", "`checkpoint.resume`, with the path of a checkpoint"},
    {torchtitan, "initial_load_path", "`checkpoint.init_from`"},
    {torchtitan, "selective_ac_option", recompute},
    {torchtitan, "init_timeout_seconds", "`communication.timeout`"},
    {torchtitan, "train_timeout_seconds", "`communication.timeout`"},
    // litgpt/args.py and the arguments of its commands
    {litgpt, "precision", of_compute},
    {litgpt, "max_tokens", "not set: `train.steps` times `batch.global_batch_size` times `batch.sequence_length`"},
    {litgpt, "lr_warmup_steps", "`optimizer.warmup_steps`"},
    {litgpt, "lr_warmup_fraction", warmup_share},
    {litgpt, "epochs", epochs},
    {litgpt, "devices", of_launch},
    {litgpt, "num_nodes", of_launch},
    {litgpt, "initial_checkpoint_dir", "`checkpoint.init_from`"},
    {litgpt, "checkpoint_dir", "`checkpoint.init_from`"},
    {litgpt, "tokenizer_dir", "`data.tokenizer`"},
    {litgpt, "tie_embeddings", "`model.tied_head`"},
    {litgpt, "logger_name", curves},
    // docs/config-reference of axolotl
    {axolotl, "base_model", "`checkpoint.init_from`, the model's folder"},
    {axolotl, "datasets", "`data.train`, the tokens that `megalith prepare` writes"},
    {axolotl, "sequence_len", "`batch.sequence_length`"},
    {axolotl, "num_epochs", epochs},
    {axolotl, "lr_scheduler", "`optimizer.decay`"},
    {axolotl, "val_set_size", of_prepare},
    {axolotl, "sample_packing", "`data.pack`"},
    {axolotl, "pad_to_sequence_len", "not needed: `data.pack` fills sequences with examples"},
    {axolotl, "tf32", of_compute},
    {axolotl, "flash_attention", "not needed: attention never stores its scores"},
    {axolotl, "saves_per_epoch", "`checkpoint.every`, in updates"},
    {axolotl, "evals_per_epoch", "`train.evaluate_every`, in updates"},
    {axolotl, "chat_template", of_prepare},
    {axolotl, "train_on_inputs", of_prepare},
    {axolotl, "dataset_prepared_path", "`data.train`"},
    {axolotl, "wandb_project", curves},
    // SFTConfig of TRL
    {trl, "max_length", "`batch.sequence_length`"},
    {trl, "packing", "`data.pack`"},
    {trl, "assistant_only_loss", of_prepare},
    {trl, "completion_only_loss", of_prepare},
    {trl, "dataset_text_field", of_prepare},
    {trl, "neftune_noise_alpha",
     "not supported: embeddings have no noise; `model.dropout` and `adapter.dropout` are there"},
};

// Values of other programs, with the values here. Names of a type differ between a config and its command line.
constexpr ForeignWord words[] = {
    {"bfloat16", "bf16"},
    {"torch.bfloat16", "bf16"},
    {"bf16-mixed", "bf16"},
    {"bf16-true", "bf16, with precision.master = bf16 and precision.moments = bf16"},
    {"float16", "fp16"},
    {"torch.float16", "fp16"},
    {"16-mixed", "fp16"},
    {"float32", "fp32"},
    {"torch.float32", "fp32"},
    {"32-true", "fp32"},
    {"fp8", "not supported: the nearest is bf16"},
    {"float8", "not supported: the nearest is bf16"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_8bit", "adamw, with precision.moments = bf16"},
    {"adamw_bnb_8bit", "adamw, with precision.moments = bf16"},
    {"paged_adamw_8bit", "adamw, with precision.moments = bf16"},
    {"adam", "adamw, with optimizer.weight_decay = 0"},
    {"wsd", "linear, with optimizer.decay_begin"},
    {"warmup_stable_decay", "linear, with optimizer.decay_begin"},
    {"constant_with_warmup", "constant, with optimizer.warmup_steps"},
    {"cosine_with_min_lr", "cosine, with optimizer.min_learning_rate"},
    {"full", "each"},
    {"fsdp", "full_shard"},
    {"zero1", "shard_optimizer"},
    {"zero2", "shard_grad_op"},
    {"zero3", "full_shard"},
    {"ddp", "no_shard"},
    {"hybrid_shard", "full_shard, with parallel.sharded_data_parallel_degree"},
    {"interleaved1f1b", "1f1b, with parallel.virtual_stages"},
    {"interleaved_1f1b", "1f1b, with parallel.virtual_stages"},
    {"zbvzerobubble", "zb_v"},
    {"interleavedzerobubble", "zb_h1, with parallel.virtual_stages"},
    {"silu", "swiglu"},
    {"swish", "swiglu"},
    {"gelu_new", "gelu"},
    {"gelu_pytorch_tanh", "gelu"},
    {"gelu_fast", "gelu"},
    {"rmsnorm", "rms"},
    {"rms_norm", "rms"},
    {"layernorm", "layer"},
    {"layer_norm", "layer"},
    {"rope", "rotary"},
    {"gpu", "cuda"},
    {"gloo", "mpi"},
    {"smddp",
     "not supported: nccl with communication.symmetric_memory = copy_engines also gathers without the GPU's "
     "multiprocessors"},
};

}  // namespace

std::span<const ForeignKey> foreign_keys() { return all; }

std::span<const ForeignWord> foreign_words() { return words; }

std::string foreign_word_message(std::string_view word, std::span<const std::string> choices) {
  std::string lower(word);
  for (char& c : lower) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (std::ranges::find(choices, lower) != choices.end()) return fmt::format("write {}", lower);
  for (const ForeignWord& foreign : words) {
    if (foreign.word != lower) continue;
    const std::string first(foreign.here.substr(0, foreign.here.find(',')));
    if (std::ranges::find(choices, first) != choices.end()) return fmt::format("write {}", foreign.here);
    if (foreign.here.starts_with("not supported")) return fmt::format("{} is {}", foreign.word, foreign.here);
  }
  return {};
}

std::string foreign_key_message(std::string_view name) {
  std::string key(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
  std::replace(key.begin(), key.end(), '-', '_');
  key.erase(0, key.find_first_not_of('_'));
  for (const ForeignKey& foreign : all)
    if (foreign.key == key)
      return fmt::format("`{}` of {} is {}{}", foreign.key, foreign.program, foreign.here,
                         foreign.here.starts_with('`') ? " here" : "");
  return {};
}

}  // namespace megalith
