#include "trainer/checkpointing/weight_source.h"

#include <filesystem>

#include "checkpoints/directory.h"
#include "checkpoints/hugging_face.h"
#include "checkpoints/reader.h"
#include "kernels/base/check.h"

namespace megalith {

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
    auto reader = std::make_unique<HuggingFaceReader>(source.path);
    const GPT2Shape& shape = reader->model();
    source.model.layers = shape.layers;
    source.model.hidden = shape.hidden;
    source.model.heads = shape.heads;
    source.model.vocab = shape.vocab;
    source.model.context = shape.context;
    if (std::filesystem::exists(std::filesystem::path(source.path) / "merges.txt")) source.tokenizer = source.path;
    source.tensors = std::move(reader);
  } else {
    auto reader = std::make_unique<CheckpointReader>(source.path);
    source.model = model_of(reader->manifest(), source.path);
    source.tokenizer = reader->manifest().state.value("tokenizer", "");
    source.tensors = std::move(reader);
  }
  return source;
}

nlohmann::json describe_model(const ModelConfig& model) {
  return {{"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"vocab", model.vocab},
          {"context", model.context}};
}

ModelConfig model_of(const Manifest& manifest, const std::string& path) {
  try {
    const auto& m = manifest.state.at("model");
    ModelConfig model;
    model.layers = m.at("layers");
    model.hidden = m.at("hidden");
    model.heads = m.at("heads");
    model.vocab = m.at("vocab");
    model.context = m.at("context");
    return model;
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: its manifest does not describe a model ({}); was it written by another program?", path,
         e.what());
  }
}

void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here) {
  auto same = [&](const char* key, int64_t in_checkpoint, int64_t in_config) {
    CHECK(in_checkpoint == in_config,
          "{} is of another model: model.{} is {} there and {} in this config; use the model it was trained with, or "
          "other weights: another run.output, checkpoint.directory or checkpoint.init_from",
          what, key, in_checkpoint, in_config);
  };
  same("layers", there.layers, here.layers);
  same("hidden", there.hidden, here.hidden);
  same("heads", there.heads, here.heads);
  same("vocab", there.vocab, here.vocab);
  same("context", there.context, here.context);
}

}  // namespace megalith
