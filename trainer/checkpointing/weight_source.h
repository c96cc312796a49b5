// Finds and opens trained weights: one of our checkpoints or a folder from Hugging Face. Of a run with adapters these
// are its base's with the adapters added (adapted_weights.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/hugging_face.h"
#include "checkpoints/manifest.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"
#include "trainer/checkpointing/adapted_weights.h"

namespace megalith {

struct WeightSource {
  std::string path;
  ModelConfig model;
  std::string tokenizer;                    // folder; empty: unknown
  std::string tokenizer_hash;               // the training tokenizer's; empty: unknown
  std::unique_ptr<TensorSource> tensors;    // the weights under parameters_path
  std::optional<int64_t> end_of_documents;  // see end_of_documents_of()
  std::optional<double> dropout;            // the training's; absent: not one number
  int64_t grown_rows = 0;                   // that were added to its tables (grown_weights.h)
};

// Returns the newest complete checkpoint of a run folder or a directory of checkpoints, or `path` itself if that is a
// checkpoint or a Hugging Face folder. Throws Error where there is none of these.
std::string find_weights(const std::string& path);
// Does the same, but throws Error for a Hugging Face folder.
std::string find_checkpoint(const std::string& path);
WeightSource open_weights(const std::string& path);
// Does the same for weights that adapters are added to, whatever adapters these hold themselves.
WeightSource open_base(const std::string& what, const BaseWeights& base, const std::string& path);

// Returns the token that ended documents which training kept apart (data.isolate_documents), or nothing where it did
// not or that is unknown.
std::optional<int64_t> end_of_documents_of(const Manifest& manifest);

// Returns 0 where the dropout is unknown.
double dropout_of(const Manifest& manifest);

// Returns every parameter of the model as a Hugging Face folder stores it, in the model's order.
std::vector<StoredParameter> stored_parameters(const ModelConfig& model);

// Convert the shape of a model to its form in a manifest, and back; `path` names the checkpoint in messages.
nlohmann::json describe_model(const ModelConfig& model);
ModelConfig model_of(const Manifest& manifest, const std::string& path);

// Returns the path of a tokenizer's folder in the form of a manifest: absolute and relative to the checkpoint, or
// empty.
nlohmann::json describe_tokenizer(const std::string& folder, const std::string& checkpoint);
// Returns the folder of the two that holds the tokenizer which the checkpoint was trained with, so that a run folder
// may be moved; the absolute path where neither exists; empty where both hold other tokenizers.
std::string tokenizer_of(const Manifest& manifest, const std::string& checkpoint);

std::string run_tokenizer(const Config& config);  // the run's copy of its tokenizer

// Throws Error where the weights, `what` in the message, are known to be trained with another tokenizer than the one of
// this hash, which `name` names.
void check_same_tokenizer(const std::string& what, const WeightSource& weights, const std::string& hash,
                          const std::string& name);

// Throws Error, naming the keys, unless both models have the same shape; `what` begins the message.
void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here);

}  // namespace megalith
