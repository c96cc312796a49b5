// Finds and opens trained weights: one of our checkpoints or a Hugging Face checkpoint. Of a run with adapters these
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
  std::string tokenizer_hash;               // of the training tokenizer; empty: unknown
  std::unique_ptr<TensorSource> tensors;    // the weights under parameters_path
  std::optional<int64_t> end_of_documents;  // see end_of_documents_of()
  std::optional<double> dropout;            // of the training; absent: not a single number
  int64_t grown_rows = 0;                   // rows that were added to its embedding (grown_weights.h)
};

// Returns the newest complete checkpoint of a run folder or a directory of checkpoints; of FOLDER/best the one with the
// lowest validation loss; or `path` itself if it is a checkpoint or a Hugging Face folder. Throws Error if it is none
// of these.
std::string find_weights(const std::string& path);
// Returns whether the path is a folder, or names the best checkpoint of one. Throws nothing.
bool may_have_weights(const std::string& path);
// As find_weights(), but throws Error for a Hugging Face folder.
std::string find_checkpoint(const std::string& path);
WeightSource open_weights(const std::string& path);
// Opens weights to which adapters are added, without any adapters of their own.
WeightSource open_base(const std::string& what, const BaseWeights& base, const std::string& path);

// Returns the token that ended documents if training kept them apart (data.isolate_documents); nullopt if it did not,
// or if that is unknown.
std::optional<int64_t> end_of_documents_of(const Manifest& manifest);

// Returns 0 if the dropout is unknown.
double dropout_of(const Manifest& manifest);

// Returns every parameter of the model as a Hugging Face folder stores it, in the model's order.
std::vector<StoredParameter> stored_parameters(const ModelConfig& model);

// Convert the shape of a model to its form in a manifest, and back; `path` names the checkpoint in messages.
nlohmann::json describe_model(const ModelConfig& model);
ModelConfig model_of(const Manifest& manifest, const std::string& path);

// Returns the path of a tokenizer's folder in the form of a manifest: absolute and relative to the checkpoint, or
// empty.
nlohmann::json describe_tokenizer(const std::string& folder, const std::string& checkpoint);
// Returns which of the two folders holds the tokenizer that the checkpoint was trained with, so that a run folder may
// be moved. If neither exists, returns the absolute path; if both hold other tokenizers, "".
std::string tokenizer_of(const Manifest& manifest, const std::string& checkpoint);

std::string run_tokenizer(const Config& config);  // the run's copy of its tokenizer

// Throws Error if the weights, `what` in the message, are known to be trained with a tokenizer of another hash; `name`
// names the tokenizer here.
void check_same_tokenizer(const std::string& what, const WeightSource& weights, const std::string& hash,
                          const std::string& name);

// Throws Error, naming the keys, unless both models have the same shape; `what` begins the message.
void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here);

}  // namespace megalith
