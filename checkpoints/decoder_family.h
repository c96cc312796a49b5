// Each family of models (Llama, Mistral, Qwen 2, Qwen 3, GPT-NeoX) has one description here of its names in Hugging
// Face `transformers`: the keys of config.json and the names of its weights. Both the reader and the writer use it.
// Source: the configuration and modeling files of versions 4.46 and 5 of `transformers`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns whether config.json's model_type names one of these families.
bool is_decoder_family(const nlohmann::json& config);

// Reads the shape from config.json; `path` names it in messages. Error, by key and value: settings that [model] does
// not have, such as sliding windows with an effect, dropout of attention only, quantised weights; an unknown key with a
// value. The caller checks the sizes (check_shape).
ModelConfig decoder_shape(const nlohmann::json& config, const std::string& path);

// Error: an odd number of rotary features, which `transformers` turns differently; `where` begins the message.
void check_turned(const ModelConfig& model, const std::string& where);

// Returns whether a key, in any config.json, has no effect on the numbers of a model.
bool is_without_effect(const std::string& key);

// Returns the model types in the order in which an export tries them. Llama's keys can express every Mistral model.
std::span<const char* const> decoder_families();

// Returns the config.json of the family's model that is nearest to `model`, which has no sizes of 0
// (ModelConfig::features and the like): decoder_shape of it equals `model` if the family can express it. It has the
// keys of versions 4 and 5, but not those of tokens and types.
nlohmann::ordered_json decoder_config(const std::string& model_type, const ModelConfig& model);

// One of the family's tensors, as rows of one of our parameters. q, k and v are one matrix here, and so are the first
// two matrices of SwiGLU.
struct DecoderTensor {
  std::string name;
  int64_t first_row;  // row of our parameter
  std::vector<int64_t> shape;
};

// Returns the tensors that hold a parameter of this name and shape, ascending by row.
std::vector<DecoderTensor> decoder_tensors(const std::string& model_type, const ModelConfig& model,
                                           const std::string& parameter, const std::vector<int64_t>& shape);

// GPT-NeoX also has q, k and v in one matrix, but ordered by head. Returns whether a parameter is stored so, and where
// its row `row` is in the family's matrix.
bool is_head_by_head(const std::string& model_type, const std::string& parameter);
int64_t row_head_by_head(int64_t row, int64_t heads, int64_t head_size);

}  // namespace megalith
