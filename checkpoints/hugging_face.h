// GPT-2 in the folder layout of Hugging Face `transformers`: config.json and model.safetensors.
//
// Our parameters bear the names they have there (without the "transformer." that some files put before them), under
// "parameters/". One thing differs: the four matrices of a layer are (out, in) here and [in, out] there, transposed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/safetensors.h"
#include "checkpoints/tensor_source.h"

namespace megalith {

struct GPT2Shape {
  int64_t layers = 0;
  int64_t hidden = 0;  // C
  int64_t heads = 0;
  int64_t vocab = 0;    // V
  int64_t context = 0;  // rows of wpe
  bool operator==(const GPT2Shape&) const = default;
};

struct GPT2Parameter {
  std::string name;            // "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // ours: (3C, C)
  bool transposed = false;     // stored [in, out] by Hugging Face
};

// Every parameter, in the order of the model: THE table of names that import, export and trainer share.
std::vector<GPT2Parameter> gpt2_parameters(const GPT2Shape& shape);

// Whether the folder holds a model.safetensors or a config.json, and so is to be read as one of these, or refused as
// one.
bool is_hugging_face_folder(const std::string& folder);

// From folder/config.json. Error, with the value, for what this model is not: another activation than tanh-GELU,
// another layer_norm_epsilon than 1e-5, untied embeddings, n_inner other than 4C, other attention scaling, cross
// attention.
GPT2Shape read_hugging_face_shape(const std::string& folder);

// Serves "parameters/<name>" in our layout. Opening checks that every parameter is there with its shape, that nothing
// unknown is, and that an lm_head.weight, if present, equals wte.weight. Reads in place: no tensor is materialised.
class HuggingFaceReader : public TensorSource {
 public:
  explicit HuggingFaceReader(const std::string& folder);

  const GPT2Shape& model() const { return model_; }

  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override;
  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const Piece& wanted, float* out) override;

 private:
  struct Stored {
    std::string name;  // in the file, with its prefix
    std::vector<int64_t> shape;
    bool transposed;
  };
  const Stored& stored(const std::string& name) const;
  void check_tied(const std::string& head) const;

  GPT2Shape model_;
  SafeTensors tensors_;
  std::map<std::string, Stored> stored_;  // by our name
};

// Writes folder/config.json and folder/model.safetensors, which GPT2LMHeadModel.from_pretrained loads. Holds one tensor
// in memory at a time. Creates the folder; an existing file of either name is an Error before anything is written.
// `end_of_text` is the token that begins and ends texts there; none: no token does.
void export_hugging_face(TensorSource& source, const GPT2Shape& model, std::optional<int64_t> end_of_text,
                         const std::string& folder);

}  // namespace megalith
