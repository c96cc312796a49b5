#include "configs/foreign_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {
namespace {

constexpr std::string_view sagemaker = "SageMaker", megatron = "Megatron-LM", deepspeed = "DeepSpeed",
                           nanogpt = "nanoGPT", transformers = "transformers";

constexpr std::string_view microbatch_size =
    "not set but follows from `batch.microbatch_size`, the sequences of one of them";
constexpr std::string_view accumulation =
    "not set but follows from `batch.global_batch_size` and `batch.microbatch_size`";
constexpr std::string_view no_such_model = "not supported: every token passes all parts of a model";
constexpr std::string_view of_compute = "a value of `precision.compute`";

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
};

}  // namespace

std::span<const ForeignKey> foreign_keys() { return all; }

std::string foreign_key_message(std::string_view name) {
  std::string key(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
  std::replace(key.begin(), key.end(), '-', '_');
  key.erase(0, key.find_first_not_of('_'));
  for (const ForeignKey& foreign : all)
    if (foreign.key == key) return fmt::format("`{}` of {} is {} here", foreign.key, foreign.program, foreign.here);
  return {};
}

}  // namespace megalith
