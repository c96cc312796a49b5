#include "trainer/checkpointing/weight_source.h"

#include <filesystem>

#include "checkpoints/directory.h"
#include "checkpoints/reader.h"
#include "kernels/base/check.h"
#include "trainer/model/spec.h"

namespace megalith {

namespace {

// What of [model] is the shape of a model. The rest may change from run to run.
constexpr std::pair<const char*, int64_t ModelConfig::*> shape_keys[] = {{"layers", &ModelConfig::layers},
                                                                         {"hidden", &ModelConfig::hidden},
                                                                         {"heads", &ModelConfig::heads},
                                                                         {"vocab", &ModelConfig::vocab},
                                                                         {"context", &ModelConfig::context}};

}  // namespace

std::string find_weights(const std::string& path) {
  const std::filesystem::path folder = path;
  CHECK(std::filesystem::is_directory(folder), "no such folder: {}", path);
  if (is_hugging_face_folder(path) || std::filesystem::exists(folder / "manifest.json")) return path;
  for (const std::filesystem::path& directory : {folder, folder / "checkpoints"}) {
    const std::vector<std::string> found = list_checkpoints(directory.string());
    if (!found.empty()) return found.front();
  }
  FAIL(
      "{} holds no complete checkpoint and is none; name a step-* folder, its parent, a run folder or a Hugging Face "
      "folder",
      path);
}

WeightSource open_weights(const std::string& path) {
  WeightSource source;
  source.path = find_weights(path);
  if (is_hugging_face_folder(source.path)) {
    source.model = read_hugging_face_shape(source.path);
    source.tensors = std::make_unique<HuggingFaceReader>(source.path, stored_parameters(source.model));
    for (const char* file : {"tokenizer.json", "merges.txt"})
      if (std::filesystem::exists(std::filesystem::path(source.path) / file)) source.tokenizer = source.path;
  } else {
    auto reader = std::make_unique<CheckpointReader>(source.path);
    source.model = model_of(reader->manifest(), source.path);
    source.tokenizer = reader->manifest().state.value("tokenizer", "");
    source.tensors = std::move(reader);
  }
  return source;
}

std::vector<StoredParameter> stored_parameters(const ModelConfig& model) {
  std::vector<StoredParameter> all;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params) all.push_back({param.name, param.shape.dims(), param.stored_transposed});
  return all;
}

nlohmann::json describe_model(const ModelConfig& model) {
  nlohmann::json shape;
  for (const auto& [key, member] : shape_keys) shape[key] = model.*member;
  return shape;
}

ModelConfig model_of(const Manifest& manifest, const std::string& path) {
  ModelConfig model;
  try {
    for (const auto& [key, member] : shape_keys) model.*member = manifest.state.at("model").at(key);
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: its manifest does not describe a model ({}); was it written by another program?", path,
         e.what());
  }
  return model;
}

void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here) {
  for (const auto& [key, member] : shape_keys)
    CHECK(there.*member == here.*member,
          "{} is of another model: model.{} is {} there and {} in this config; use the model it was trained with, or "
          "other weights: another run.output, checkpoint.directory or checkpoint.init_from",
          what, key, there.*member, here.*member);
}

}  // namespace megalith
