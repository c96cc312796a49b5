// Which parameters of a model are trained: those of adapters alone, where there are some, or all but the frozen ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/config.h"

namespace megalith {

// A linear layer of a block as `transformers` names it: all of one of ours, or q, k or v, or one of SwiGLU's two
// products, which are parts of one of ours.
struct AdapterModule {
  std::string path;    // "self_attn.q_proj", within a layer
  std::string linear;  // "attn.c_attn"
  int64_t part = 0;    // of the equally named ones, counted by rows
};

// Returns the linear layers of a block by the names of the family that has such a model: Llama's with SwiGLU, GPT-2's
// with learned positions, GPT-NeoX's else. Those of one of ours lie together, in the order of its rows.
std::vector<AdapterModule> adapter_modules(const ModelConfig& model);

// Returns what stands before a layer's number in the names of that family, "model.layers.".
std::string adapter_layers(const ModelConfig& model);

// Returns the rows of the module's output.
int64_t rows_of(const AdapterModule& module, const ModelConfig& model);

// Returns those of them that have adapters. As in PEFT a word of target_modules names all whose path it is or ends with
// after a dot; all-linear names all. Error: a word that names none.
std::vector<AdapterModule> adapted_modules(const ModelConfig& model);

// Returns whether a parameter of ours ("h.0.attn.c_attn.weight") is trained.
bool is_trained(const ModelConfig& model, std::string_view parameter);

// The names of an adapter's parameters have ".lora_" in them; those of its two matrices end so.
inline constexpr std::string_view adapter_a = ".lora_A.weight", adapter_b = ".lora_B.weight";
bool is_of_adapter(std::string_view parameter);

// Returns what is wrong with train.freeze, or "": a word that names no parameter of `names`.
std::string freeze_problem(const std::string& freeze, const std::vector<std::string>& names);

}  // namespace megalith
