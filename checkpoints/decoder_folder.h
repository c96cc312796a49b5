// Models of the families Llama, Mistral, Qwen 2, Qwen 3 and GPT-NeoX in the folder layout of Hugging Face
// `transformers`: config.json as versions 4 and 5 write it, and model.safetensors or several files with an index.
// hugging_face.h opens them beside GPT-2's.
//
// A parameter of ours may lie in several tensors there, one below the other: q, k and v are one matrix here, and so are
// the two products of SwiGLU. GPT-NeoX has q, k and v in one matrix too, but head by head.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoints/hugging_face.h"
#include "checkpoints/safetensors_folder.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"

namespace megalith {

// Returns whether config.json's model_type names one of these families.
bool is_decoder_family(const nlohmann::json& config);

// Reads the shape from config.json; `path` names it in messages. Error, by key and value: what such a file can say and
// [model] cannot, as sliding windows that would act, dropout of attention alone, quantised weights.
ModelConfig decoder_shape(const nlohmann::json& config, const std::string& path);

// Serves "parameters/<name>" in our layout, and reads only what it is asked for. Opening checks that every tensor is
// there with its shape and that nothing unknown is.
class DecoderReader : public TensorSource {
 public:
  DecoderReader(const std::string& folder, const ModelConfig& model, const std::vector<StoredParameter>& parameters);

  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const TensorShard& wanted, float* out) override;

 private:
  struct Tensor {
    std::string name;
    int64_t first_row;  // of ours
  };
  struct Stored {
    std::vector<int64_t> shape;   // ours
    std::vector<Tensor> tensors;  // ascending by row
    bool head_by_head = false;    // q, k and v as in GPT-NeoX
  };
  const Stored& stored(const std::string& name) const;
  void check_tied(const std::string& head) const;

  SafeTensorsFolder tensors_;
  int64_t heads_, head_size_;
  std::map<std::string, Stored> stored_;  // by our name
};

}  // namespace megalith
