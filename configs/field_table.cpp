#include "configs/field_table.h"

namespace megalith {
namespace {

// The upper limits keep every product of two sizes inside 64 bits.
Table<Config> build_table() {
  Table<Config> table;

  Rows model(table, "model", &Config::model);
  model.number("layers", &ModelConfig::layers, "layers", between(1, 1e4), "Transformer blocks");
  model.number("hidden", &ModelConfig::hidden, "channels", between(1, 1e6), "Width of the residual stream");
  model.number("heads", &ModelConfig::heads, "heads", between(1, 1e6),
               "Attention heads a layer; must divide hidden, unless head_size is set");
  model.number("vocab", &ModelConfig::vocab, "tokens", between(0, 2147483647),
               "Rows of the embedding; 0: those of the tokenizer");
  model.number("context", &ModelConfig::context, "tokens", between(1, 1 << 24),
               "The longest sequence that the model can read, and the rows of a learned position table");
  model.number("dropout", &ModelConfig::dropout, "probability", from_to_below(0, 1),
               "Dropout on embeddings, attention and both residual branches");
  model.word("norm", &ModelConfig::norm, "Layer norm, or RMS norm, which has no mean and no bias");
  model.number("norm_epsilon", &ModelConfig::norm_epsilon, "", between(1e-12, 1), "Added to the variance in norms");
  model.word("bias", &ModelConfig::bias, "Biases in the linear layers except q, k and v");
  model.word("qkv_bias", &ModelConfig::qkv_bias, "Biases in the layers for q, k and v");
  model.word("tied_head", &ModelConfig::tied_head,
             "The head uses the embedding as its matrix, instead of one of its own");
  model.word("activation", &ModelConfig::activation,
             "In the feed-forward layers: GELU by tanh or by erf, or SwiGLU, which multiplies two products");
  model.number("feed_forward", &ModelConfig::feed_forward, "features", between(0, 4e6),
               "Width between the matrices of a feed-forward layer; 0: 4 * hidden");
  model.number("key_value_heads", &ModelConfig::key_value_heads, "heads", between(0, 1e6),
               "Heads of keys and values, each shared by a group of neighbouring heads; must divide heads; 0: heads");
  model.number("head_size", &ModelConfig::head_size, "features", between(0, 1e6), "Width of a head; 0: hidden / heads");
  model.word("positions", &ModelConfig::positions,
             "A table added to the embeddings (learned), or rotation of queries and keys (rotary)");
  model.number("rotary_base", &ModelConfig::rotary_base, "", between(1, 1e12),
               "Rotary positions: theta, whose powers are the frequencies");
  model.number("rotary_share", &ModelConfig::rotary_share, "share", between(1e-6, 1),
               "Rotary positions: share of a head's features that is rotated, the first ones");
  model.number("rotary_factor", &ModelConfig::rotary_factor, "", between(1, 1e6),
               "Rotary positions: lowers low frequencies as Llama 3 does, for a longer context; 1: off");
  model.number("rotary_low", &ModelConfig::rotary_low, "waves", between(1e-6, 1e6),
               "Frequencies with fewer waves than this in rotary_context are divided by all of rotary_factor");
  model.number("rotary_high", &ModelConfig::rotary_high, "waves", between(1e-6, 1e6),
               "Frequencies with more waves than this in rotary_context are unchanged");
  model.number("rotary_context", &ModelConfig::rotary_context, "tokens", between(1, 1 << 24),
               "The context that frequencies were made for, before rotary_factor");
  model.word("query_key_norm", &ModelConfig::query_key_norm,
             "RMS norms, with norm_epsilon, over the features of each head of q and k, before rotation");
  model.word("parallel_residual", &ModelConfig::parallel_residual,
             "Attention and feed-forward layer both read the block's input, and their outputs are added together");
  model.number("initial_std", &ModelConfig::initial_std, "", between(1e-6, 1),
               "Standard deviation of the initial matrices and embedding");
  model.number(
      "initial_output_std", &ModelConfig::initial_output_std, "", between(0, 1),
      "Standard deviation of the initial matrices that end attention and feed-forward layers; 0: initial_std / "
      "sqrt(2 * layers)");

  Rows adapter(table, "adapter", &Config::adapter);
  adapter.number(
      "rank", &AdapterConfig::rank, "features", between(0, 65536),
      "Train low-rank adapters (LoRA) of this rank on the linear layers of checkpoint.init_from, whose weights are "
      "frozen; 0: off");
  adapter.number("alpha", &AdapterConfig::alpha, "", above(0),
                 "The output of an adapter is multiplied by alpha / rank");
  adapter.number("dropout", &AdapterConfig::dropout, "probability", from_to_below(0, 1),
                 "Dropout on the inputs of adapters");
  adapter.word_or_list("target_modules", &AdapterConfig::target_modules,
                       "The layers with adapters, by PEFT's names, as [\"q_proj\", \"v_proj\"], or c_attn in GPT-2; "
                       "all-linear: all of a block");
  adapter.word("init_from", &AdapterConfig::init_from,
               "Folder of PEFT, or checkpoint of a run with adapters, with the initial adapters; empty: the first "
               "matrix is random, the second zero");

  Rows data(table, "data", &Config::data);
  data.word_or_list("train", &DataConfig::train,
                    "Tokens to train on: a file, a prefix of shards, a glob, or a list of these with weights, as in "
                    "[\"wiki/*.bin 0.7\", \"code.bin 0.3\"]");
  data.word_or_list("validation", &DataConfig::validation,
                    "Tokens to evaluate on: a file, a prefix or a glob; or a list of named sets, as in "
                    "[\"wiki=wiki.bin\", \"code=code.bin\"], of which the first decides on the best; empty: none");
  data.word(
      "tokenizer", &DataConfig::tokenizer,
      "bytes, train:VOCAB or a tokenizer's folder, as given to prepare; empty: tokenizer/ in the folder of data.train");
  data.word("shuffle", &DataConfig::shuffle,
            "Draw samples in a new random order in every epoch; false: in the order of the files");
  data.number("seed", &DataConfig::seed, "", at_least(0), "Seed of the sample order");
  data.word("isolate_documents", &DataConfig::isolate_documents,
            "Isolate documents: attention does not cross their ends, and positions count from their beginnings");
  data.number("end_of_text", &DataConfig::end_of_text, "token", between(-1, 2147483646),
              "The last token of a document, for isolate_documents; -1: the tokenizer's");
  data.word("allow_overlap", &DataConfig::allow_overlap,
            "Train even if data.train has files of data.validation, for example to see whether a model can overfit");
  data.word(
      "pack", &DataConfig::pack,
      "Examples of tokens with a mask share sequences, each attending only to itself; false: one example a sequence");
  data.word("masked", &DataConfig::masked,
            "Some tokens do not count in the loss, and examples are isolated; set from the masks of the token files, "
            "if they exist");

  Rows batch(table, "batch", &Config::batch);
  batch.number("sequence_length", &BatchConfig::sequence_length, "tokens", between(0, 1 << 24),
               "Length of a training sample; 0: model.context");
  batch.number("global_batch_size", &BatchConfig::global_batch_size, "sequences", between(1, 1e9),
               "Sequences in an update, over all ranks");
  batch.number("microbatch_size", &BatchConfig::microbatch_size, "sequences", between(1, 1e9),
               "Sequences that a tensor-parallel group runs at a time; gradients accumulate over the batch");

  Rows parallel(table, "parallel", &Config::parallel);
  parallel.number("tensor_parallel_degree", &ParallelConfig::tensor_parallel_degree, "ranks", between(1, 1e6),
                  "Ranks that split each layer");
  parallel.word("sequence_parallel", &ParallelConfig::sequence_parallel,
                "Split the residual stream over the tensor-parallel ranks along the sequence");
  parallel.number("tensor_pieces", &ParallelConfig::tensor_pieces, "pieces", between(0, 64),
                  "Cut products into this many pieces, to overlap tensor-parallel sums with them; 1: in backward only; "
                  "0: no overlap");
  parallel.number("pipeline_parallel_degree", &ParallelConfig::pipeline_parallel_degree, "ranks", between(1, 1e6),
                  "Ranks that split the stack of layers");
  parallel.number("virtual_stages", &ParallelConfig::virtual_stages, "stages", between(1, 1e4),
                  "Chunks of the stack that each pipeline rank holds, interleaved");
  parallel.word("pipeline_schedule", &ParallelConfig::pipeline_schedule,
                "1f1b: one forward, one backward in turn (interleaved with virtual_stages); gpipe: all forwards first; "
                "zero bubble: gradients of weights fill the waits, in the order of 1f1b (zb_h1), or with layers as a "
                "V, in the memory of 1f1b (zb_v) or half of it (v_half)");
  parallel.number("active_microbatches", &ParallelConfig::active_microbatches, "microbatches", between(0, 1e9),
                  "Maximum number of microbatches in flight on a pipeline rank, under zb_v in both chunks of its "
                  "layers; 0: as needed by the schedule; with more, zb_v waits less");
  parallel.word("layers_per_stage", &ParallelConfig::layers_per_stage,
                "Layers of each (virtual) stage in the order of the model, as in \"5 6 5\"; empty: balanced");
  parallel.word("sharding_strategy", &ParallelConfig::sharding_strategy,
                "What data-parallel ranks shard: all (ZeRO-3), gradients and optimizer (2), optimizer (1), nothing");
  parallel.number("sharded_data_parallel_degree", &ParallelConfig::sharded_data_parallel_degree, "ranks",
                  between(0, 1e6), "Ranks that share one copy of the state; 0: all data-parallel ranks");
  parallel.word("hierarchical_allgather", &ParallelConfig::hierarchical_allgather,
                "Gather weights between nodes first, then inside each");
  parallel.number(
      "max_live_parameters", &ParallelConfig::max_live_parameters, "parameters", between(0, 1e12),
      "Maximum number of parameters of layers that full_shard keeps gathered, at least two layers; 0: two layers");
  parallel.number("replicate_below", &ParallelConfig::replicate_below, "parameters", between(0, 1e12),
                  "Gathered units of at most this size stay gathered until the update, and are reduced once a step");
  parallel.word("prescaled_batch", &ParallelConfig::prescaled_batch,
                "Count microbatch_size per tensor-parallel group; false: per rank");
  parallel.word("placement", &ParallelConfig::placement,
                "Order of the axes on the ranks, innermost first; put those that communicate most first");
  parallel.number("ranks_per_node", &ParallelConfig::ranks_per_node, "ranks", between(0, 1e6),
                  "Ranks on a node; 0: as launched; when planning, the devices of hardware.profile, or 8");

  Rows memory(table, "memory", &Config::memory);
  memory.word("activation_checkpointing", &MemoryConfig::activation_checkpointing,
              "Which activations the backward pass recomputes instead of keeping");
  memory.word("offload_activations", &MemoryConfig::offload_activations,
              "Keep the inputs of recomputed layers or groups in host memory");
  memory.number("activation_loading_horizon", &MemoryConfig::activation_loading_horizon, "groups", between(1, 1e4),
                "How many layers or groups before its backward pass an offloaded input is fetched");
  memory.number("offload_optimizer", &MemoryConfig::offload_optimizer, "share", between(0, 1),
                "Share of master weights and moments that is in host memory between updates");
  memory.word("offload_parameters", &MemoryConfig::offload_parameters,
              "Also keep the weights that full_shard gathers in host memory");
  memory.number("lm_head_chunks", &MemoryConfig::lm_head_chunks, "chunks", between(0, 1e6),
                "Chunks of rows in which logits are computed; 0: chosen from the shapes and the device");

  Rows precision(table, "precision", &Config::precision);
  precision.word("compute", &PrecisionConfig::compute, "Type of activations and of the weights used with them");
  precision.word(
      "products", &PrecisionConfig::products,
      "Type of the factors of the layers' products: that of compute, or fp8, with one scale for each tensor");
  precision.number("first_layers_in_bf16", &PrecisionConfig::first_layers_in_bf16, "layers", between(0, 1e6),
                   "Number of layers at the start of the model whose products stay in bf16 under products = \"fp8\"");
  precision.number("last_layers_in_bf16", &PrecisionConfig::last_layers_in_bf16, "layers", between(0, 1e6),
                   "The same at the end of the model");
  precision.word(
      "residual", &PrecisionConfig::residual,
      "Type of the residual stream and its gradient, and so of messages between stages: that of compute, or fp32");
  precision.word("master", &PrecisionConfig::master, "Type of the weights that the optimizer updates");
  precision.word("moments", &PrecisionConfig::moments, "Type of AdamW's two moments and of Muon's momentum");
  precision.word("gradient_reduce", &PrecisionConfig::gradient_reduce,
                 "Type of gradients in transfers between data-parallel ranks; they are added in fp32");
  precision.word("stochastic_rounding", &PrecisionConfig::stochastic_rounding,
                 "Round bf16 master weights and moments stochastically, so that small updates are not lost");
  precision.number("loss_scale", &PrecisionConfig::loss_scale, "", at_least(0),
                   "Fixed factor on the loss under fp16; 0: dynamic");
  precision.number("initial_loss_scale", &PrecisionConfig::initial_loss_scale, "", above(0),
                   "Initial dynamic loss scale");
  precision.number("loss_scale_window", &PrecisionConfig::loss_scale_window, "updates", between(1, 1e12),
                   "Updates without overflow after which the loss scale doubles");
  precision.number(
      "delayed_shift", &PrecisionConfig::delayed_shift, "overflows", between(1, 1e6),
      "The number of the overflow, since the loss scale last doubled, from which on each overflow halves it");
  precision.number("minimum_loss_scale", &PrecisionConfig::minimum_loss_scale, "", above(0),
                   "Minimum loss scale, at which overflows count for train.max_bad_steps");

  Rows optimizer(table, "optimizer", &Config::optimizer);
  optimizer.word(
      "algorithm", &OptimizerConfig::algorithm,
      "Update rule of the layers' matrices; AdamW updates everything else: embedding, head, norms and biases");
  optimizer.number("learning_rate", &OptimizerConfig::learning_rate, "", above(0),
                   "Highest learning rate, reached at the end of the warm-up");
  optimizer.number("min_learning_rate", &OptimizerConfig::min_learning_rate, "", at_least(0),
                   "Learning rate at the end of the decay");
  optimizer.number("warmup_steps", &OptimizerConfig::warmup_steps, "steps", between(0, 1e12),
                   "Steps, including skipped ones, over which the learning rate rises linearly from zero");
  optimizer.word("decay", &OptimizerConfig::decay,
                 "Shape of the decay from learning_rate to min_learning_rate; sqrt: by 1 - sqrt of the way");
  optimizer.number(
      "decay_begin", &OptimizerConfig::decay_begin, "steps", between(0, 1e12),
      "Steps before the decay, at the highest learning rate after the warm-up; 0: the decay follows the warm-up");
  optimizer.number("decay_steps", &OptimizerConfig::decay_steps, "steps", between(0, 1e12),
                   "Step, counted from the start, at which the decay ends; 0: train.steps (or the end of the warm-up "
                   "or the beginning of the decay, if later)");
  optimizer.number("beta1", &OptimizerConfig::beta1, "", from_to_below(0, 1), "Decay rate of AdamW's first moment");
  optimizer.number("beta2", &OptimizerConfig::beta2, "", from_to_below(0, 1), "Decay rate of AdamW's second moment");
  // The update is in f32, where a smaller epsilon may be 0 and not prevent 0 / 0.
  optimizer.number("epsilon", &OptimizerConfig::epsilon, "", at_least(std::numeric_limits<float>::min()),
                   "Added to AdamW's denominator, to prevent division by zero");
  optimizer.number("weight_decay", &OptimizerConfig::weight_decay, "", at_least(0),
                   "Decoupled weight decay of tensors with two or more dimensions");
  optimizer.number("gradient_clip", &OptimizerConfig::gradient_clip, "", at_least(0),
                   "Maximum global gradient norm; larger gradients are scaled down to it; 0: off");
  optimizer.number("muon_learning_rate", &OptimizerConfig::muon_learning_rate, "", at_least(0),
                   "Highest learning rate of the matrices that Muon updates; 0: learning_rate");
  optimizer.number("muon_min_learning_rate", &OptimizerConfig::muon_min_learning_rate, "", at_least(0),
                   "Their learning rate at the end of the decay; 0: min_learning_rate");

  Rows train(table, "train", &Config::train);
  train.number("steps", &TrainConfig::steps, "updates", between(1, 1e12), "Updates in the whole run");
  train.number("minutes", &TrainConfig::minutes, "minutes", between(0, 1e7),
               "End the run after this much training even if steps remain; 0: no limit");
  train.number("seed", &TrainConfig::seed, "", at_least(0), "Seed of initial weights and dropout");
  train.number("evaluate_every", &TrainConfig::evaluate_every, "updates", between(0, 1e12),
               "Updates between evaluations on data.validation; 0: only at the end");
  train.number("evaluate_batches", &TrainConfig::evaluate_batches, "batches", between(1, 1e9),
               "Global batches that an evaluation reads");
  train.number("early_stopping_patience", &TrainConfig::early_stopping_patience, "evaluations", between(0, 1e9),
               "End the run after this many evaluations in a row that find no lower validation loss; 0: off");
  train.number(
      "max_bad_steps", &TrainConfig::max_bad_steps, "steps", between(1, 1e9),
      "Steps in a row that may be skipped, for a non-finite loss or norm or by skip_norm_above, before the run ends");
  train.number("skip_norm_above", &TrainConfig::skip_norm_above, "", at_least(0),
               "Skip steps whose gradient norm is above this many times the median of the last 128 updates'; 0: off");
  train.word("trace_steps", &TrainConfig::trace_steps,
             "Steps to trace for ui.perfetto.dev, as 10 or 10-12: writes trace-10-12.json to run.output; empty: off");
  train.number("log_every", &TrainConfig::log_every, "steps", between(0, 1e12),
               "Steps between lines on the console and in log.txt; 0: by time, a line every 10 s and later every "
               "minute, on a terminal every 5 s");
  train.word_or_list("freeze", &TrainConfig::freeze,
                     "Frozen parameters: embeddings, attention (with its norms of q and k), feed_forward, norms (all), "
                     "biases, head, or names with *, as [\"embeddings\", \"h.0.*\"]; empty: none");
  train.number("sample_every", &TrainConfig::sample_every, "updates", between(0, 1e12),
               "Updates between texts that the model writes, for the log, metrics.jsonl and the report; 0: off");
  train.word_or_list("sample_prompts", &TrainConfig::sample_prompts,
                     "Prompts of these texts: a list, as in [\"It was\", \"The\"], or a file with one a line, or with "
                     "{\"prompt\": TEXT} on each line of a .jsonl file; empty: one empty prompt");
  train.number("sample_tokens", &TrainConfig::sample_tokens, "tokens", between(1, 1 << 24),
               "Maximum number of tokens added to each of these texts");
  train.number("sample_temperature", &TrainConfig::sample_temperature, "", at_least(0),
               "Temperature of their sampling; 0: always the most likely token");
  train.number("sample_top_k", &TrainConfig::sample_top_k, "tokens", between(0, 1 << 24),
               "Sample among this many most likely tokens; 0: all");
  train.number("sample_top_p", &TrainConfig::sample_top_p, "probability", between(1e-6, 1),
               "Sample among the fewest most likely tokens that together have this probability; 1: all");

  Rows checkpoint(table, "checkpoint", &Config::checkpoint);
  checkpoint.word("directory", &CheckpointConfig::directory,
                  "Folder of this run's checkpoints; empty: checkpoints in run.output");
  checkpoint.number("every", &CheckpointConfig::every, "updates", between(0, 1e12),
                    "Updates between checkpoints, in addition to checkpoint.minutes; 0: only by time");
  checkpoint.number("minutes", &CheckpointConfig::minutes, "minutes", between(0, 1e7),
                    "Maximum time between checkpoints, in addition to the one at the end of the run; 0: not by time");
  checkpoint.number("patience", &CheckpointConfig::patience, "minutes", between(0, 1e7),
                    "Maximum time without a checkpoint when saves fail, as on a full disk: until then the run warns, "
                    "continues and tries again, then it ends; 0: it ends with the first failure");
  checkpoint.word("asynchronous", &CheckpointConfig::asynchronous,
                  "Write checkpoints asynchronously from a copy of the state in host memory: a step waits only for the "
                  "copy, and the end of the run for the files of its last checkpoint");
  checkpoint.number(
      "on_signal_seconds", &CheckpointConfig::on_signal_seconds, "seconds", between(0, 1e6),
      "Time to end after SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 to mpirun or a rank, or after the death of "
      "mpirun. The run ends after the current step with a checkpoint and exit status 75; or without one and with 128 "
      "plus the signal's number, if that is expected to take longer than this or a second signal comes. mpirun kills "
      "the ranks soon after SIGTERM or SIGINT: send it SIGUSR1, as `megalith run` does");
  checkpoint.number("keep", &CheckpointConfig::keep, "checkpoints", between(0, 1e9),
                    "How many of the newest checkpoints to keep; 0: all");
  checkpoint.number("keep_every", &CheckpointConfig::keep_every, "steps", between(0, 1e12),
                    "Also keep for good the first checkpoint at or after each multiple of this many steps; 0: off");
  checkpoint.word(
      "keep_best", &CheckpointConfig::keep_best,
      "Save after each evaluation that finds a lower validation loss than all before, and keep the checkpoint "
      "with the lowest; commands find it as FOLDER/best");
  checkpoint.number("settle", &CheckpointConfig::settle, "steps", between(0, 1e12),
                    "Stable steps that must follow a checkpoint before older ones are deleted; until then up to two "
                    "more than keep remain");
  checkpoint.word(
      "resume", &CheckpointConfig::resume,
      "auto: the newest complete checkpoint, if any; best: the one with the lowest validation loss; never; or "
      "the path of a checkpoint");
  checkpoint.word("allow_changes", &CheckpointConfig::allow_changes,
                  "Resume even if data, seeds, sequence length, batch or learning rates have changed");
  checkpoint.word("init_from", &CheckpointConfig::init_from,
                  "Checkpoint or Hugging Face checkpoint with the initial weights and the keys of [model] that are not "
                  "set; empty: random weights");

  Rows run(table, "run", &Config::run);
  run.word("output", &RunConfig::output, "Folder for the log, the metrics and the resolved configuration");
  run.word("device", &RunConfig::device, "Where to compute; auto: on a GPU if there is one");
  run.word("tensorboard", &RunConfig::tensorboard,
           "Also write the contents of metrics.jsonl to run.output/tensorboard, for TensorBoard");
  run.word("cuda_graphs", &RunConfig::cuda_graphs,
           "Launch the ops that are the same in each microbatch as CUDA graphs, for models whose ops are so small that "
           "the GPU waits for the host; measured, traced and replayed steps are launched op by op. Changes no bit");

  Rows communication(table, "communication", &Config::communication);
  communication.word(
      "rendezvous", &CommunicationConfig::rendezvous,
      "Folder that all nodes see, in which ranks started without MPI connect; empty: they connect through MPI");
  communication.word("backend", &CommunicationConfig::backend,
                     "Transport of tensors between GPUs; mpi: through the host, slowly, and ranks may share a GPU");
  communication.number("max_ctas", &CommunicationConfig::max_ctas, "thread blocks", between(0, 64),
                       "Maximum thread blocks of NCCL for each communicator; 0: NCCL's choice, 4 for messages and for "
                       "groups of all ranks");
  communication.word(
      "nvls", &CommunicationConfig::nvls,
      "Let NCCL reduce in NVLink's switches: faster on Hopper and later, but not reproducible to the bit");
  communication.word("symmetric_memory", &CommunicationConfig::symmetric_memory,
                     "NCCL registers the memory of runs as symmetric. kernels (NCCL 2.27 or later): sums and gathers "
                     "inside a node access the memory of the other GPUs directly, and sums have another order; "
                     "copy_engines (2.28 or later): gathers inside a node also leave all multiprocessors to concurrent "
                     "products. Not measured yet, so predicted times do not change");
  communication.number("timeout", &CommunicationConfig::timeout, "seconds", at_least(0),
                       "How long a rank waits for others, in a step or at the start, before the job ends and reports "
                       "which ranks are behind; 0: forever");

  Rows hardware(table, "hardware", &Config::hardware);
  hardware.word("profile", &HardwareConfig::profile,
                "For plan and search: the machines, by name, as p4d.24xlarge or l40s, or a file that describes them");
  hardware.number("nodes", &HardwareConfig::nodes, "nodes", between(1, 1e6),
                  "For plan and search: the number of machines");
  hardware.number("devices_per_node", &HardwareConfig::devices_per_node, "devices", between(0, 1e4),
                  "Devices of a node; 0: those of the profile");

  return table;
}

}  // namespace

const Table<Config>& field_table() {
  static const Table<Config> table = build_table();
  return table;
}

const Field* find_field(std::string_view name) { return find_field(field_table(), name); }

}  // namespace megalith
