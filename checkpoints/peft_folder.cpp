#include "checkpoints/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/ranges.h>

#include "checkpoints/decoder_family.h"
#include "checkpoints/safetensors.h"
#include "configs/adapter.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
constexpr const char *config_name = "/adapter_config.json", *weights_name = "/adapter_model.safetensors";

// One of PEFT's tensors, as rows of one of our parameters.
struct PeftTensor {
  std::string name, ours;
  int64_t first_row, rows, cols;
  bool head_by_head;
};

std::string ours_of(int64_t layer, const std::string& linear, std::string_view matrix) {
  return fmt::format("{}h.{}.{}{}", parameters_path, layer, linear, matrix);
}

// Returns the number of input features of a layer.
int64_t inputs_of(const AdapterModule& module, const ModelConfig& model) {
  if (module.linear == "attn.c_proj") return model.heads * model.size_of_head();
  return module.linear == "mlp.c_proj" ? model.features() : model.hidden;
}

// In the order of our parameters.
std::vector<PeftTensor> tensors_of(const ModelConfig& model) {
  std::vector<PeftTensor> all;
  const int64_t inner = model.adapter.rank;
  for (int64_t layer = 0; layer < model.layers; layer++) {
    std::string linear;
    int64_t of_a = 0, of_b = 0;
    for (const AdapterModule& module : adapted_modules(model)) {
      if (module.linear != linear) of_a = of_b = 0;
      linear = module.linear;
      const std::string theirs = fmt::format("base_model.model.{}{}.{}", adapter_layers(model), layer, module.path);
      const int64_t rows = rows_of(module, model);
      all.push_back({theirs + std::string(adapter_a), ours_of(layer, linear, adapter_a), of_a, inner,
                     inputs_of(module, model), false});
      all.push_back({theirs + std::string(adapter_b), ours_of(layer, linear, adapter_b), of_b, rows, inner,
                     module.path == "attention.query_key_value"});
      of_a += inner;
      of_b += rows;
    }
  }
  return all;
}

// The shapes of our parameters.
std::map<std::string, std::vector<int64_t>> shapes_of(const std::vector<PeftTensor>& tensors) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const PeftTensor& t : tensors) {
    std::vector<int64_t>& shape = shapes.try_emplace(t.ours, std::vector<int64_t>{0, t.cols}).first->second;
    shape[0] = std::max(shape[0], t.first_row + t.rows);
  }
  return shapes;
}

int64_t row_of(const PeftTensor& t, const ModelConfig& model, int64_t row) {
  return t.head_by_head ? row_head_by_head(row, model.heads, model.size_of_head()) : row;
}

}  // namespace

// Checks the keys that change what an adapter computes.
void check_peft_config(std::string_view text, const std::string& path, const AdapterConfig& here) {
  Json config;
  try {
    config = parse_json(text);
  } catch (const Json::exception& e) {
    FAIL("{} is not JSON: {}", path, e.what());
  }
  CHECK(config.is_object() && config.value("peft_type", Json()) == "LORA",
        "{}: peft_type = {}; megalith trains only LORA", path,
        config.is_object() ? json_text(config.value("peft_type", Json())) : "none");
  // All keys except those read below and those without an effect on the adapter.
  static const std::set<std::string> known{"peft_type",
                                           "r",
                                           "lora_alpha",
                                           "init_lora_weights",
                                           "bias",
                                           "target_modules",
                                           "exclude_modules",
                                           "fan_in_fan_out",
                                           "task_type",
                                           "auto_mapping",
                                           "base_model_name_or_path",
                                           "revision",
                                           "inference_mode",
                                           "lora_dropout",
                                           "peft_version",
                                           "layers_pattern",
                                           "megatron_config",
                                           "megatron_core",
                                           "loftq_config",
                                           "eva_config",
                                           "corda_config",
                                           "lora_ga_config",
                                           "qalora_group_size",
                                           "runtime_config"};
  CHECK(!config.contains("bias") || config["bias"].is_null() || config["bias"] == "none",
        "{}: bias = {}; megalith reads only adapters with \"none\"", path, json_text(config["bias"]));
  const std::string other = unknown_key(config, [](const std::string& key) { return known.contains(key); });
  CHECK(other.empty(), "{}: {} = {}; megalith reads plain LoRA, without this key, which changes the adapter's results",
        path, other, json_text(config[other]));
  // Other values also change the base's weights (PiSSA, OLoRA, CorDA, LoftQ).
  const Json begun = config.value("init_lora_weights", Json(true));
  CHECK(!begun.is_string() || begun == "gaussian" || begun == "eva" || begun == "orthogonal",
        "{}: init_lora_weights = {}: such adapters belong to a base that was changed for them; megalith reads adapters "
        "of an unchanged base",
        path, json_text(begun));
  const auto number = [&](const char* key) {
    CHECK(config.contains(key) && config[key].is_number(), "{}: {} is not a number", path, key);
    return config[key].get<double>();
  };
  CHECK(number("r") == static_cast<double>(here.rank), "{}: r = {}, but adapter.rank = {}; set adapter.rank to r", path,
        json_text(config["r"]), here.rank);
  CHECK(number("lora_alpha") == here.alpha,
        "{}: lora_alpha = {}, but adapter.alpha = {}; set adapter.alpha to lora_alpha", path,
        json_text(config["lora_alpha"]), here.alpha);
}

const MemorySource::Values& MemorySource::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end(), "there is no {}", name);
  return found->second;
}

std::vector<int64_t> MemorySource::shape(const std::string& name) const { return tensor(name).shape; }

void MemorySource::read(const TensorShard& wanted, float* out) {
  check_shard(wanted);
  const Values& from = tensor(wanted.name);
  CHECK(from.shape == wanted.shape, "{} has shape ({}), expected ({})", wanted.name, fmt::join(from.shape, ", "),
        fmt::join(wanted.shape, ", "));
  const int64_t cols = wanted.cols(), width = wanted.columns.size();
  for (int64_t at = wanted.elements.begin; at < wanted.elements.end; at++)
    *out++ = from.values[static_cast<size_t>(at / width * cols + wanted.columns.begin + at % width)];
}

bool is_peft_folder(const std::string& folder) {
  std::error_code absent;
  return std::filesystem::exists(folder + config_name, absent);
}

MemorySource read_peft(const std::string& folder, const ModelConfig& model) {
  const std::string path = folder + config_name;
  check_peft_config(read_file(path), path, model.adapter);
  const SafeTensors file(folder + weights_name);
  std::set<std::string> unclaimed;
  for (const auto& [name, entry] : file.entries()) unclaimed.insert(name);
  const std::vector<PeftTensor> tensors = tensors_of(model);
  std::map<std::string, MemorySource::Values> all;
  for (const auto& [name, shape] : shapes_of(tensors))
    all[name] = {shape, std::vector<float>(static_cast<size_t>(shape[0] * shape[1]))};
  for (const PeftTensor& t : tensors) {
    CHECK(unclaimed.erase(t.name) == 1, "{} has no {}, which adapter.target_modules names", file.path(), t.name);
    const std::vector<int64_t>& found = file.entry(t.name).shape;
    CHECK((found == std::vector{t.rows, t.cols}), "{}: {} has shape ({}), expected ({}, {})", file.path(), t.name,
          fmt::join(found, ", "), t.rows, t.cols);
    std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
    file.read(t.name, 0, 1, t.rows * t.cols, values.data());
    CHECK(std::ranges::all_of(values, [](float v) { return std::isfinite(v); }),
          "{}: {} has values that are not finite; use an earlier checkpoint of these adapters", file.path(), t.name);
    float* to = all[t.ours].values.data() + t.first_row * t.cols;
    for (int64_t row = 0; row < t.rows; row++)
      std::copy_n(values.data() + row_of(t, model, row) * t.cols, t.cols, to + row * t.cols);
  }
  CHECK(unclaimed.empty(),
        "{} has {}, for which this run has no adapter; set adapter.target_modules to the same layers", file.path(),
        *unclaimed.begin());
  return MemorySource(std::move(all));
}

void export_peft(TensorSource& source, const ModelConfig& model, const std::string& base, const std::string& folder) {
  for (const char* name : {config_name, weights_name}) check_nothing_at(folder + name, "choose another folder");
  make_folders(folder, "choose another");
  const std::vector<PeftTensor> tensors = tensors_of(model);
  const std::map<std::string, std::vector<int64_t>> shapes = shapes_of(tensors);
  std::vector<SafeTensorsWriter::Declared> declared;
  for (const PeftTensor& t : tensors) declared.push_back({t.name, {t.rows, t.cols}});
  SafeTensorsWriter weights(folder + weights_name, declared);
  for (const PeftTensor& t : tensors) {
    std::vector<float> ours(static_cast<size_t>(t.rows * t.cols)), theirs(ours.size());
    source.read(flat_shard(t.ours, shapes.at(t.ours), {t.first_row * t.cols, (t.first_row + t.rows) * t.cols}),
                ours.data());
    for (int64_t row = 0; row < t.rows; row++)
      std::copy_n(ours.data() + row * t.cols, t.cols, theirs.data() + row_of(t, model, row) * t.cols);
    weights.append(theirs.data(), t.rows * t.cols);
  }
  weights.finish();
  std::vector<std::string> modules;
  for (const AdapterModule& module : adapted_modules(model)) modules.push_back(module.path);
  const bool is_gpt2 = adapter_layers(model) == "transformer.h.";
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", base},
                                         {"r", model.adapter.rank},
                                         {"lora_alpha", model.adapter.alpha},
                                         {"lora_dropout", model.adapter.dropout},
                                         {"target_modules", modules},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", is_gpt2},
                                         {"modules_to_save", nullptr},
                                         {"use_rslora", false},
                                         {"use_dora", false},
                                         {"inference_mode", true}};
  write_file(folder + config_name, json_text(config, 1) + "\n");
}

}  // namespace megalith
