#include "configs/adapter.h"

#include "configs/rules.h"
#include "kernels/system/check.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace megalith {
namespace {

// Returns the words of an option that is a single word or a list.
std::vector<std::string> words_of_lines(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Compares a name with a pattern in which each * matches any characters.
bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*')
    return !name.empty() && pattern.front() == name.front() && fits(pattern.substr(1), name.substr(1));
  for (size_t skipped = 0; skipped <= name.size(); skipped++)
    if (fits(pattern.substr(1), name.substr(skipped))) return true;
  return false;
}

bool is_of_kind(std::string_view kind, std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const bool norm = has("ln_1.") || has("ln_2.") || has("ln_f.") || has("q_norm.") || has("k_norm.");
  if (kind == "embeddings") return name == "wte.weight" || name == "wpe.weight";
  if (kind == "attention") return has(".attn.");
  if (kind == "feed_forward") return has(".mlp.");
  if (kind == "norms") return norm;
  if (kind == "biases") return name.ends_with(".bias");
  if (kind == "head") return name == "lm_head.weight";
  return false;
}

bool names_parameter(std::string_view word, std::string_view name) {
  return is_of_kind(word, name) || fits(word, name) ||
         (name.size() > word.size() && name.starts_with(word) && name[word.size()] == '.');
}

}  // namespace

std::vector<AdapterModule> adapter_modules(const ModelConfig& model) {
  if (model.activation == Activation::swiglu)
    return {{"self_attn.q_proj", "attn.c_attn", 0}, {"self_attn.k_proj", "attn.c_attn", 1},
            {"self_attn.v_proj", "attn.c_attn", 2}, {"self_attn.o_proj", "attn.c_proj"},
            {"mlp.gate_proj", "mlp.c_fc", 0},       {"mlp.up_proj", "mlp.c_fc", 1},
            {"mlp.down_proj", "mlp.c_proj"}};
  if (model.positions == Positions::learned)
    return {{"attn.c_attn", "attn.c_attn"},
            {"attn.c_proj", "attn.c_proj"},
            {"mlp.c_fc", "mlp.c_fc"},
            {"mlp.c_proj", "mlp.c_proj"}};
  return {{"attention.query_key_value", "attn.c_attn"},
          {"attention.dense", "attn.c_proj"},
          {"mlp.dense_h_to_4h", "mlp.c_fc"},
          {"mlp.dense_4h_to_h", "mlp.c_proj"}};
}

std::string adapter_layers(const ModelConfig& model) {
  if (model.activation == Activation::swiglu) return "model.layers.";
  return model.positions == Positions::learned ? "transformer.h." : "gpt_neox.layers.";
}

int64_t rows_of(const AdapterModule& module, const ModelConfig& model) {
  if (module.linear.ends_with("c_proj")) return model.hidden;
  if (module.linear == "mlp.c_fc") return model.features();
  const bool is_whole = !module.path.ends_with("_proj");
  if (is_whole) return model.qkv_width();
  return (module.part == 0 ? model.heads : model.kv_heads()) * model.size_of_head();
}

std::vector<AdapterModule> adapted_modules(const ModelConfig& model) {
  if (!model.adapter.in_use()) return {};
  const std::vector<AdapterModule> all = adapter_modules(model);
  std::vector<bool> named(all.size());
  for (const std::string& word : words_of_lines(model.adapter.target_modules)) {
    bool found = false;
    for (size_t i = 0; i < all.size(); i++)
      if (word == "all-linear" || all[i].path == word || all[i].path.ends_with("." + word)) named[i] = found = true;
    if (found) continue;
    std::vector<std::string> known;
    for (const AdapterModule& module : all) known.push_back(module.path.substr(module.path.find('.') + 1));
    FAIL("adapter.target_modules names {}, which is not a linear layer of this model; it has {}", word,
         fmt::join(known, ", "));
  }
  std::vector<AdapterModule> adapted;
  for (size_t i = 0; i < all.size(); i++)
    if (named[i]) adapted.push_back(all[i]);
  CHECK(!adapted.empty(), "adapter.target_modules is empty; name the layers that have adapters, or all-linear");
  return adapted;
}

bool is_of_adapter(std::string_view parameter) { return parameter.find(".lora_") != std::string_view::npos; }

bool is_trained(const ModelConfig& model, std::string_view parameter) {
  if (model.adapter.in_use()) return is_of_adapter(parameter);
  return std::ranges::none_of(words_of_lines(model.freeze),
                              [&](const std::string& word) { return names_parameter(word, parameter); });
}

std::string freeze_problem(const std::string& freeze, const std::vector<std::string>& names) {
  for (const std::string& word : words_of_lines(freeze))
    if (std::ranges::none_of(names, [&](const std::string& name) { return names_parameter(word, name); }))
      return fmt::format(
          "names {}, which is neither a parameter of this model nor a kind of parameters; the kinds are embeddings, "
          "attention, feed_forward, norms, biases and head, and names are those of megalith checkpoint inspect, as "
          "h.0.*",
          word);
  return "";
}

std::optional<Problem> trained_problem(const Config& config) {
  if (!config.adapter.in_use()) {
    if (!config.adapter.init_from.empty())
      return problem(config, "adapter.init_from",
                     "has no effect with adapter.rank = 0, which trains all weights; set the rank of these adapters "
                     "there, or leave it empty");
    if (config.train.freeze.empty() || config.precision.compute != ComputeType::fp16) return {};
    return problem(config, "train.freeze",
                   "keeps weights in the type of precision.compute = \"fp16\", which checkpoints cannot store; set "
                   "bf16 or fp32 there");
  }
  if (!config.train.freeze.empty())
    return problem(config, "train.freeze",
                   "has no effect with adapter.rank = {}, which freezes all but the adapters; leave it empty",
                   config.adapter.rank);
  try {
    ModelConfig model = config.model;
    model.adapter = config.adapter;
    adapted_modules(model);
  } catch (const Error& e) {
    return Problem{"adapter.target_modules", e.what()};
  }
  return {};
}

}  // namespace megalith
