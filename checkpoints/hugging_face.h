// GPT-2, and models of other families (decoder_folder.h), in the folder layout of Hugging Face `transformers`:
// config.json and model.safetensors, or several safetensors files with an index. The caller lists the parameters and
// how they are stored: the four matrices of a layer are (out, in) here and [in, out] in the files. Names are those of
// the files, without the "transformer." that some files prepend.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/generation_config.h"
#include "checkpoints/safetensors_folder.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

struct StoredParameter {
  std::string name;            // "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // in our layout: (3C, C)
  bool transposed = false;     // [in, out] in the file
};

// Returns whether the folder holds a config.json or weights of any format. If so it is read as a Hugging Face
// checkpoint, or refused.
bool is_hugging_face_folder(const std::string& folder);

// Reads folder/config.json, of GPT-2 or of a family that decoder_folder.h lists. Error, with the value, for any other
// model. Errors for GPT-2: an activation other than tanh-GELU, sizes outside the ranges of [model], a
// layer_norm_epsilon other than 1e-5, untied embeddings, another feed-forward width, other attention scaling, cross
// attention.
ModelConfig read_hugging_face_shape(const std::string& folder);
// As above, from the text of a config.json; `path` names it in messages.
ModelConfig hugging_face_shape(std::string_view text, const std::string& path);

// Returns the token at which documents ended if training kept them apart (data.isolate_documents), from a folder that
// export_hugging_face wrote; nullopt if it did not. Errors: those of config.json, as above.
std::optional<int64_t> read_hugging_face_end_of_documents(const std::string& folder);
std::optional<int64_t> hugging_face_end_of_documents(std::string_view text, const std::string& path);

// Returns the dropout in folder/config.json, with `transformers`' defaults; none if it has several. Errors as above.
constexpr const char* hugging_face_dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
std::optional<double> read_hugging_face_dropout(const std::string& folder);
std::optional<double> hugging_face_dropout(std::string_view text, const std::string& path);

// Serves "parameters/<name>" in our layout. Opening checks that every parameter exists with its shape, that there are
// no unknown tensors, and that an lm_head.weight, if present, equals wte.weight. Tensors are not loaded as a whole.
class HuggingFaceReader : public TensorSource {
 public:
  HuggingFaceReader(const std::string& folder, const std::vector<StoredParameter>& parameters);

  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const TensorShard& wanted, float* out) override;

 private:
  const StoredParameter& stored(const std::string& name) const;
  void check_tied(const std::string& head) const;

  SafeTensorsFolder tensors_;
  std::map<std::string, StoredParameter> stored_;  // by our name; `name` is the file's, with the prefix
};

// Opens the weights of a folder whose config.json has this shape.
std::unique_ptr<TensorSource> open_hugging_face(const std::string& folder, const ModelConfig& model,
                                                const std::vector<StoredParameter>& parameters);

// Returns the model_type in whose keys an export describes the model: gpt2 if its keys suffice, or else the first
// sufficient type of decoder_families(). Error, by key and value, if no type suffices.
constexpr const char* gpt2_family = "gpt2";
std::string exported_family(const ModelConfig& model);

// The options of an export.
struct ExportForm {
  DType type = DType::f32;  // or bf16, rounded to nearest
  // The tensors of a file have at most these bytes, unless it is one tensor. Several files get an index.
  int64_t most_bytes = 5'000'000'000;
  bool cuts_table = false;  // the source's embedding may have more rows than model.vocab: writes the first ones
  // For generation_config.json. Its eos_token_id and bos_token_id come from `ends` and `begin`, not from its keys.
  GenerationConfig generation{};
};
// Returns the bytes of the model's tensors.
int64_t export_bytes(const std::vector<StoredParameter>& parameters, DType type);

// Writes config.json, generation_config.json and model.safetensors (or model-00001-of-00003.safetensors, ... and
// model.safetensors.index.json) into the folder, which it creates, for AutoModelForCausalLM.from_pretrained, as a model
// of exported_family. Holds one tensor in memory at a time, GPT-NeoX's q, k and v twice. If a file of these names
// exists, Error before anything is written. form.generation has the tokens that end texts; if it is empty, no token
// does. Only GPT-2 has dropout. `end_of_documents` (see above) is written to config.json as {"megalith":
// {"isolate_documents": true, "end_of_text": TOKEN}}; `transformers` ignores it.
void export_hugging_face(TensorSource& source, const ModelConfig& model, const std::vector<StoredParameter>& parameters,
                         const std::string& folder, std::optional<int64_t> end_of_documents = {},
                         const ExportForm& form = {});

}  // namespace megalith
