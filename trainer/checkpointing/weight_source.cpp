#include "trainer/checkpointing/weight_source.h"

#include <charconv>
#include <filesystem>
#include <map>

#include "checkpoints/peft_folder.h"
#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "data/samples/path_pattern.h"
#include "data/tokenizers/tokenizer.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/validation_history.h"
#include "trainer/model/model.h"

namespace megalith {

namespace {
namespace fs = std::filesystem;

// Returns the hash of the tokenizer in a folder, or "" if none can be read.
std::string hash_of_folder(const std::string& folder) {
  std::error_code absent;
  if (folder.empty() || !fs::is_directory(folder, absent)) return "";
  try {
    return hash_of(*load_tokenizer(folder));
  } catch (const Error&) {
    return "";
  }
}

// Returns a value of the run's fingerprint, or "" if it is unknown or had no effect.
std::string trained_with(const Manifest& manifest, const std::string& key) {
  return manifest.state.value(nlohmann::json::json_pointer("/course/" + key), std::string());
}

}  // namespace

namespace {
// Returns whether a path is FOLDER/best, and not a folder of that name.
bool names_best(const fs::path& path) {
  std::error_code absent;
  return path.filename() == "best" && path.has_parent_path() && !fs::exists(path, absent);
}

// `folder` is a run folder or a directory of checkpoints.
std::string find_best(const fs::path& folder) {
  CHECK(fs::is_directory(folder), "no such folder: {}; name a run folder or its checkpoints/ before /best",
        folder.string());
  for (const fs::path& directory : {folder, folder / "checkpoints"})
    if (std::string best = best_checkpoint(directory.string()); !best.empty()) return best;
  FAIL(
      "no checkpoint in {} was saved right after an evaluation, so none is known to be the best; train with "
      "data.validation and checkpoint.keep_best = true, or name a step-* folder",
      folder.string());
}
}  // namespace

bool may_have_weights(const std::string& path) {
  std::error_code absent;
  return fs::is_directory(path, absent) || (names_best(path) && fs::is_directory(fs::path(path).parent_path(), absent));
}

std::string find_weights(const std::string& path) {
  check_path(path);
  const fs::path folder = path;
  if (names_best(folder)) return find_best(folder.parent_path());
  CHECK(fs::is_directory(folder),
        "no such folder: {}; name a run folder, its checkpoints/, a checkpoint or a Hugging Face checkpoint", path);
  CHECK(!is_peft_folder(path),
        "{} is a folder of PEFT, which has only adapters; name it with adapter.init_from, and their base with "
        "checkpoint.init_from",
        path);
  if (is_hugging_face_folder(path) || fs::exists(folder / "manifest.json")) return path;
  // A run may replace its only checkpoint after its name is read and before it is examined.
  for (int tries = 0; tries < 3; tries++)
    for (const fs::path& directory : {folder, folder / "checkpoints"}) {
      const std::vector<std::string> found = CheckpointStore(directory.string()).usable();
      if (!found.empty()) return found.front();
    }
  FAIL(
      "{} is not a checkpoint and has no complete one; name a step-* folder, its parent, a run folder or a Hugging "
      "Face checkpoint",
      path);
}

std::string find_checkpoint(const std::string& path) {
  const std::string found = find_weights(path);
  CHECK(!is_hugging_face_folder(found),
        "{} is a Hugging Face checkpoint, but this command reads Megalith's; generate, evaluate and "
        "checkpoint.init_from read both",
        found);
  return found;
}

namespace {
WeightSource open_found(const std::string& found) {
  WeightSource source;
  source.path = found;
  if (is_hugging_face_folder(source.path)) {
    source.model = read_hugging_face_shape(source.path);
    source.end_of_documents = read_hugging_face_end_of_documents(source.path);
    source.dropout = read_hugging_face_dropout(source.path);
    source.tensors = open_hugging_face(source.path, source.model, stored_parameters(source.model));
    for (const char* file : {"tokenizer.json", "merges.txt"})
      if (fs::exists(fs::path(source.path) / file)) source.tokenizer = source.path;
  } else {
    auto reader = std::make_unique<CheckpointReader>(source.path);
    source.model = model_of(reader->manifest(), source.path);
    source.tokenizer = tokenizer_of(reader->manifest(), source.path);
    source.end_of_documents = end_of_documents_of(reader->manifest());
    source.dropout = dropout_of(reader->manifest());
    source.tokenizer_hash = trained_with(reader->manifest(), "tokenizer");
    if (const std::optional<BaseWeights> base = base_of(reader->manifest(), source.path)) {
      ModelConfig adapted = source.model;
      adapted.adapter = adapter_of(reader->manifest(), source.path);
      WeightSource below = open_base("checkpoint " + source.path, *base, base->path);
      check_same_model("the base " + base->path, below.model, source.model);
      source.tensors = std::make_unique<MergedSource>(std::move(below.tensors), *reader, adapted);
    } else {
      source.tensors = std::move(reader);
    }
  }
  if (source.tokenizer_hash.empty()) source.tokenizer_hash = hash_of_folder(source.tokenizer);
  return source;
}

}  // namespace

WeightSource open_weights(const std::string& path) {
  // A run may remove the checkpoint that was found before it is read; it then has newer ones.
  for (int tries = 0; tries < 3; tries++) {
    const std::string found = find_weights(path);
    try {
      return open_found(found);
    } catch (const Error&) {
      if (std::error_code error; found == path || std::filesystem::exists(found, error)) throw;
    }
  }
  return open_found(find_weights(path));
}

WeightSource open_base(const std::string& what, const BaseWeights& base, const std::string& path) {
  std::error_code absent;
  CHECK(fs::is_directory(path, absent),
        "{} has adapters of a base with the fingerprint {}, but {} is missing; restore it, or for training name its "
        "new place with checkpoint.init_from",
        what, base.fingerprint, path);
  WeightSource source = open_weights(path);
  check_base(what, base, path, *source.tensors, source.model);
  return source;
}

double dropout_of(const Manifest& manifest) {
  const std::string text = trained_with(manifest, "settings/model.dropout");
  double dropout = 0;
  std::from_chars(text.data(), text.data() + text.size(), dropout);
  return dropout;
}

std::optional<int64_t> end_of_documents_of(const Manifest& manifest) {
  if (trained_with(manifest, "settings/data.isolate_documents") != "true") return {};
  const std::string text = trained_with(manifest, "settings/data.end_of_text");
  int64_t token = -1;
  std::from_chars(text.data(), text.data() + text.size(), token);
  return token;
}

std::vector<StoredParameter> stored_parameters(const ModelConfig& model) {
  std::vector<StoredParameter> all;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params) all.push_back({param.name, param.shape.dims(), param.stored_transposed});
  return all;
}

nlohmann::json describe_model(const ModelConfig& model) {
  nlohmann::json shape;
  for (const std::string& key : shape_keys()) shape[key] = parse_json(shape_value(model, key));
  return shape;
}

ModelConfig model_of(const Manifest& manifest, const std::string& path) {
  ModelConfig model;
  try {
    const nlohmann::json& shape = manifest.state.at("model");
    // Older checkpoints have only these five, and GPT-2's settings, which are the defaults of the others.
    const std::map<std::string, int64_t ModelConfig::*> sizes{{"layers", &ModelConfig::layers},
                                                              {"hidden", &ModelConfig::hidden},
                                                              {"heads", &ModelConfig::heads},
                                                              {"vocab", &ModelConfig::vocab},
                                                              {"context", &ModelConfig::context}};
    for (const auto& [key, member] : sizes) model.*member = whole_number(shape.at(key));
    for (const std::string& key : shape_keys())
      if (shape.contains(key) && !sizes.contains(key))
        set_shape_value(model, key, json_text(shape.at(key)), path + "/manifest.json");
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: its manifest does not describe a model ({}); was it written by another program?", path,
         e.what());
  }
  check_shape(model, path + "/manifest.json");
  return model;
}

std::string run_tokenizer(const Config& config) { return config.run.output + "/tokenizer"; }

nlohmann::json describe_tokenizer(const std::string& folder, const std::string& checkpoint) {
  if (folder.empty()) return {{"tokenizer", ""}};
  const fs::path path = fs::absolute(folder).lexically_normal();
  const fs::path from = fs::absolute(checkpoint).lexically_normal();
  return {{"tokenizer", path.string()}, {"tokenizer_from_here", path.lexically_relative(from).string()}};
}

std::string tokenizer_of(const Manifest& manifest, const std::string& checkpoint) {
  const auto text = [&](const char* key) { return manifest.state.value(key, std::string()); };
  const std::string relative = text("tokenizer_from_here"), recorded = text("tokenizer");
  const std::string known = trained_with(manifest, "tokenizer");
  const auto fits = [&](const std::string& folder) {
    std::error_code absent;
    if (folder.empty() || !fs::is_directory(folder, absent)) return false;
    const std::string hash = hash_of_folder(folder);
    return !hash.empty() && (known.empty() || hash == known);
  };
  if (!relative.empty()) {
    const std::string moved = (fs::absolute(checkpoint) / relative).lexically_normal().string();
    if (fits(moved)) return moved;
  }
  std::error_code absent;
  return fits(recorded) || !fs::is_directory(recorded, absent) ? recorded : "";
}

void check_same_tokenizer(const std::string& what, const WeightSource& weights, const std::string& hash,
                          const std::string& name) {
  CHECK(weights.tokenizer_hash.empty() || hash.empty() || weights.tokenizer_hash == hash,
        "{} was trained with another tokenizer{} than {}: its model would misread the text; prepare the text with the "
        "tokenizer of the weights, or use other weights",
        what, weights.tokenizer.empty() ? "" : ", the one in " + weights.tokenizer + ",", name);
}

void check_same_model(const std::string& what, const ModelConfig& there, const ModelConfig& here) {
  std::string wrong;
  for (const std::string& key : shape_keys())
    if (const std::string then = shape_value(there, key), now = shape_value(here, key); then != now)
      wrong += fmt::format("{}model.{} is {} there and {} in this config", wrong.empty() ? "" : ", ", key, then, now);
  CHECK(wrong.empty(),
        "{} is of another model: {}; use the model it was trained with, or other weights: another run.output, "
        "checkpoint.directory or checkpoint.init_from",
        what, wrong);
}

}  // namespace megalith
