// Where trained weights come from: one of our checkpoints or a Hugging Face GPT-2 folder, by whatever path names it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/hugging_face.h"
#include "checkpoints/manifest.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"

namespace megalith {

struct WeightSource {
  std::string path;                         // of what was found
  ModelConfig model;                        // its shape
  std::string tokenizer;                    // folder; empty when none is known
  std::string tokenizer_hash;               // of the one that they were trained with; empty when it is not known
  std::unique_ptr<TensorSource> tensors;    // the weights under parameters_path
  std::optional<int64_t> end_of_documents;  // as below
  std::optional<double> dropout;            // of a training that goes on from there; none: it is not one number
};

// `path`: a checkpoint, a directory of checkpoints or a run folder (then the newest complete one), or a Hugging Face
// folder. Error when there is none of these.
std::string find_weights(const std::string& path);
// The same for what only a checkpoint can answer: a Hugging Face folder is an Error as well.
std::string find_checkpoint(const std::string& path);
WeightSource open_weights(const std::string& path);

// The token at which documents ended that were kept apart in training (data.isolate_documents); none: they were
// not, or it is not known.
std::optional<int64_t> end_of_documents_of(const Manifest& manifest);

// Returns the dropout that a checkpoint was trained with, and 0 where it is not known.
double dropout_of(const Manifest& manifest);

// Every parameter of the model as a Hugging Face folder stores it, in the order of the model.
std::vector<StoredParameter> stored_parameters(const ModelConfig& model);

// The shape of a model as a checkpoint's manifest holds it, and back; `path` names the checkpoint in messages.
nlohmann::json describe_model(const ModelConfig& model);
ModelConfig model_of(const Manifest& manifest, const std::string& path);

// Where the tokenizer of a checkpoint is, as its manifest holds it: a folder, absolute and from the folder of the
// checkpoint; empty without one. And back: the folder of the two whose tokenizer is the one that the checkpoint
// was trained with, so that a run that has moved is understood. Where both are gone, a path at which there is none;
// empty where there are only other tokenizers.
nlohmann::json describe_tokenizer(const std::string& folder, const std::string& checkpoint);
std::string tokenizer_of(const Manifest& manifest, const std::string& checkpoint);

// The run folder's copy of its tokenizer.
std::string run_tokenizer(const Config& config);

// Throws Error where it is known that these weights, `what` in the message, were trained with another tokenizer than
// the one of this hash, which `name` names.
void check_same_tokenizer(const std::string& what, const WeightSource& weights, const std::string& hash,
                          const std::string& name);

// Throws Error, naming the keys, unless both are the same shape of model; `what` begins the message.
void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here);

}  // namespace megalith
