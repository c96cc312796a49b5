// Low-rank adapters in the folder layout of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors.
// Source of keys and names: src/peft/tuners/lora/config.py and src/peft/utils/save_and_load.py of PEFT 0.13 to 0.18.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoints/tensor_source.h"
#include "configs/config.h"

namespace megalith {

// Serves tensors in memory.
class MemorySource : public TensorSource {
 public:
  struct Values {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  explicit MemorySource(std::map<std::string, Values> tensors) : tensors_(std::move(tensors)) {}

  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const TensorShard& wanted, float* out) override;

 private:
  const Values& tensor(const std::string& name) const;
  std::map<std::string, Values> tensors_;  // by name
};

// Returns whether the folder holds an adapter_config.json.
bool is_peft_folder(const std::string& folder);

// Checks an adapter_config.json against [adapter]; `path` names it in messages. Error as below.
void check_peft_config(std::string_view text, const std::string& path, const AdapterConfig& here);

// Reads the adapters of a model with [adapter], under our names, "parameters/h.0.attn.c_attn.lora_A.weight". Error,
// with both values: rank, alpha or layers that differ from the model's, and settings that [adapter] does not have, such
// as DoRA, ranks by layer, trained biases.
MemorySource read_peft(const std::string& folder, const ModelConfig& model);

// Writes the adapters for PeftModel.from_pretrained; the source has them under our names. `base` is the folder of the
// base model in adapter_config.json. If a file of these names exists, Error before anything is written.
void export_peft(TensorSource& source, const ModelConfig& model, const std::string& base, const std::string& folder);

}  // namespace megalith
