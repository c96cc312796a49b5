#include "configs/foreign_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {
namespace {

constexpr ForeignWord known_words[] = {
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
    {"fp8", "bf16, with precision.products = fp8"},
    {"float8", "bf16, with precision.products = fp8"},
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

std::span<const ForeignWord> foreign_words() { return known_words; }

std::string foreign_word_message(std::string_view word, std::span<const std::string> choices) {
  std::string lower(word);
  for (char& c : lower) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (std::ranges::find(choices, lower) != choices.end()) return fmt::format("write {}", lower);
  for (const ForeignWord& foreign : known_words) {
    if (foreign.word != lower) continue;
    const std::string first(foreign.here.substr(0, foreign.here.find(',')));
    if (std::ranges::find(choices, first) != choices.end()) return fmt::format("write {}", foreign.here);
    if (foreign.here.starts_with("not supported")) return fmt::format("{} is {}", foreign.word, foreign.here);
  }
  return {};
}

}  // namespace megalith
