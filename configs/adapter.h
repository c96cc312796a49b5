// Which parameters of a model are trained: only those of adapters if it has adapters, else all but the frozen ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/config.h"

namespace megalith {

// A linear layer of a block as `transformers` names it: the whole of one of our layers, or a part of it (q, k or v, or
// one of SwiGLU's two products).
struct AdapterModule {
  std::string path;    // "self_attn.q_proj", within a layer
  std::string linear;  // "attn.c_attn"
  int64_t part = 0;    // among the parts of that layer, in the order of its rows
};

// Returns the linear layers of a block, named as in the family of such a model: Llama's with SwiGLU, GPT-2's with
// learned positions, else GPT-NeoX's. The parts of one of our layers are neighbours, in the order of its rows.
std::vector<AdapterModule> adapter_modules(const ModelConfig& model);

// Returns the text before a layer's number in the names of that family, "model.layers.".
std::string adapter_layers(const ModelConfig& model);

// Returns the rows of the module's output.
int64_t rows_of(const AdapterModule& module, const ModelConfig& model);

// Returns the linear layers that have adapters. As in PEFT, a word of target_modules matches each layer whose path
// equals it or ends with it after a dot; all-linear matches all. Error: a word that matches none.
std::vector<AdapterModule> adapted_modules(const ModelConfig& model);

// Returns whether a parameter with our name ("h.0.attn.c_attn.weight") is trained.
bool is_trained(const ModelConfig& model, std::string_view parameter);

// The names of an adapter's parameters contain ".lora_"; those of its two matrices have these ends.
inline constexpr std::string_view adapter_a = ".lora_A.weight", adapter_b = ".lora_B.weight";
bool is_of_adapter(std::string_view parameter);

// Returns the error in train.freeze, or "": a word that matches no parameter in `names`.
std::string freeze_problem(const std::string& freeze, const std::vector<std::string>& names);

}  // namespace megalith
