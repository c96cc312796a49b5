// Each family of models (Llama, Mistral, Qwen 2, Qwen 3, GPT-NeoX) has one description here of how Hugging Face
// `transformers` names its choices and tensors: the keys of config.json and the names in its weights. The reader and
// the writer both follow it. Source: the configuration and modeling files of versions 4.46 and 5 of `transformers`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns whether config.json's model_type names one of these families.
bool is_decoder_family(const nlohmann::json& config);

// Reads the shape from config.json; `path` names it in messages. Error, by key and value: what such a file can say and
// [model] cannot, as sliding windows that would act, dropout of attention alone, quantised weights; a key that is not
// known and says something. The caller checks the sizes (check_shape).
ModelConfig decoder_shape(const nlohmann::json& config, const std::string& path);

// Error: `transformers` turns an odd number of a head's features otherwise than we do; `where` begins the message.
void check_turned(const ModelConfig& model, const std::string& where);

// Returns whether a key of any config.json is known to say nothing of what the model computes.
bool is_without_effect(const std::string& key);

// Returns the types of models in the order in which an export tries them. Llama's keys say all that Mistral's do.
std::span<const char* const> decoder_families();

// Returns the config.json of the model of a family that is nearest to `model`, which has no sizes of 0
// (ModelConfig::features and the like): decoder_shape of it is `model` if the family can say it. It has the keys of
// versions 4 and 5, and none of tokens and types.
nlohmann::ordered_json decoder_config(const std::string& model_type, const ModelConfig& model);

// A tensor there: rows of a parameter of ours. q, k and v are one matrix here, and so are the two products of SwiGLU.
struct DecoderTensor {
  std::string name;
  int64_t first_row;  // of ours
  std::vector<int64_t> shape;
};

// Returns the tensors that hold a parameter of this name and shape, ascending by row.
std::vector<DecoderTensor> decoder_tensors(const std::string& model_type, const ModelConfig& model,
                                           const std::string& parameter, const std::vector<int64_t>& shape);

// GPT-NeoX has q, k and v in one matrix as we do, but head by head. Returns whether a parameter is stored so, and where
// its row `row` is there.
bool is_head_by_head(const std::string& model_type, const std::string& parameter);
int64_t row_head_by_head(int64_t row, int64_t heads, int64_t head_size);

}  // namespace megalith
