// The export of hugging_face.h.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include <fmt/ranges.h>

#include "checkpoints/hugging_face.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

using Parameters = std::span<const StoredParameter>;

std::string ours_of(const StoredParameter& p) { return std::string(parameters_path) + p.name; }
std::string theirs_of(const StoredParameter& p) { return "transformer." + p.name; }

int64_t numel_of(const StoredParameter& p) {
  return std::accumulate(p.shape.begin(), p.shape.end(), int64_t{1}, std::multiplies<>());
}

// Returns the shard that the export reads from a source of shape `found`, which may have more rows.
TensorShard shard_of(const StoredParameter& p, const std::vector<int64_t>& found, const ExportForm& form) {
  const bool cut =
      form.cuts_table && p.name == "wte.weight" && found.size() == 2 && found[0] > p.shape[0] && found[1] == p.shape[1];
  CHECK(cut || found == p.shape, "{} has shape ({}), expected ({}) for this model", p.name, fmt::join(found, ", "),
        fmt::join(p.shape, ", "));
  return flat_shard(ours_of(p), found, {0, numel_of(p)});
}

// Divides parameters into files of at most so many bytes, or of one tensor.
std::vector<Parameters> files_of(Parameters all, const ExportForm& form) {
  std::vector<Parameters> files;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < all.size(); i++) {
    const int64_t more = numel_of(all[i]) * size_of(form.type);
    if (i > begin && bytes + more > form.most_bytes) {
      files.push_back(all.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  files.push_back(all.subspan(begin));
  return files;
}

std::string name_of_file(size_t number, size_t all) {
  return all == 1 ? "/model.safetensors" : fmt::format("/model-{:05}-of-{:05}.safetensors", number + 1, all);
}

void write_tensors(TensorSource& source, Parameters parameters, const ExportForm& form, const std::string& path) {
  std::vector<SafeTensorsWriter::Declared> declared;
  for (const StoredParameter& p : parameters) {
    declared.push_back({theirs_of(p), p.shape});
    if (p.transposed) std::ranges::reverse(declared.back().shape);
  }
  SafeTensorsWriter weights(path, declared, form.type);
  for (const StoredParameter& p : parameters) {
    std::vector<float> data(static_cast<size_t>(numel_of(p)));
    source.read(shard_of(p, source.shape(ours_of(p)), form), data.data());
    if (!p.transposed) {
      weights.append(data.data(), numel_of(p));
      continue;
    }
    const int64_t out = p.shape[0], in = p.shape[1];
    std::vector<float> row(static_cast<size_t>(out));  // one row of theirs is one column of ours
    for (int64_t i = 0; i < in; i++) {
      for (int64_t o = 0; o < out; o++) row[static_cast<size_t>(o)] = data[static_cast<size_t>(o * in + i)];
      weights.append(row.data(), out);
    }
  }
  weights.finish();
}

}  // namespace

int64_t export_bytes(const std::vector<StoredParameter>& parameters, DType type) {
  int64_t bytes = 0;
  for (const StoredParameter& p : parameters) bytes += numel_of(p) * size_of(type);
  return bytes;
}

void export_hugging_face(TensorSource& source, const ModelConfig& model, const std::vector<StoredParameter>& parameters,
                         std::optional<int64_t> end_of_text, const std::string& folder,
                         std::optional<int64_t> end_of_documents, const ExportForm& form) {
  // GPT-2's choices are the defaults.
  for (const std::string& key : shape_keys()) {
    static const std::set<std::string> sizes{"layers", "hidden", "heads", "vocab", "context"};
    const std::string here = shape_value(model, key), gpt2 = shape_value({}, key);
    CHECK(sizes.contains(key) || here == gpt2,
          "model.{} = {}: a folder for `transformers` is written as GPT-2, which has {}; our own commands read the "
          "checkpoint as it is",
          key, here, gpt2);
  }
  CHECK(!end_of_text || (0 <= *end_of_text && *end_of_text < model.vocab),
        "the token {} ends a text, but the model has {} of them; is it another model's tokenizer?", *end_of_text,
        model.vocab);
  for (const StoredParameter& p : parameters) shard_of(p, source.shape(ours_of(p)), form);
  const std::vector<Parameters> files = files_of(parameters, form);
  const std::string index_file = "/model.safetensors.index.json", config_file = "/config.json",
                    generation_file = "/generation_config.json";
  std::vector<std::string> names{config_file, generation_file, "/model.safetensors", index_file};
  for (size_t i = 0; i < files.size(); i++) names.push_back(name_of_file(i, files.size()));
  for (const std::string& name : names) {
    std::error_code error;
    CHECK(!std::filesystem::exists(folder + name, error),
          "{}{} exists already and is not overwritten; choose another folder", folder, name);
  }
  make_folders(folder, "choose another");

  nlohmann::ordered_json index{{"metadata", {{"total_size", export_bytes(parameters, form.type)}}},
                               {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < files.size(); i++) {
    const std::string name = name_of_file(i, files.size());
    write_tensors(source, files[i], form, folder + name);
    for (const StoredParameter& p : files[i]) index["weight_map"][theirs_of(p)] = name.substr(1);
  }
  if (files.size() > 1) write_file(folder + index_file, json_text(index, 1) + "\n");

  nlohmann::ordered_json config = {{"architectures", {"GPT2LMHeadModel"}},
                                   {"model_type", "gpt2"},
                                   {"vocab_size", model.vocab},
                                   {"n_positions", model.context},
                                   {"n_ctx", model.context},
                                   {"n_embd", model.hidden},
                                   {"n_layer", model.layers},
                                   {"n_head", model.heads},
                                   {"n_inner", nullptr},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"tie_word_embeddings", true},
                                   {"torch_dtype", form.type == DType::f32 ? "float32" : "bfloat16"}};
  // Written even for no dropout or token: `transformers` would take 0.1, and 50256.
  for (const char* key : hugging_face_dropouts) config[key] = model.dropout;
  nlohmann::ordered_json generation;
  for (const char* key : {"bos_token_id", "eos_token_id"})
    config[key] = generation[key] = end_of_text ? nlohmann::ordered_json(*end_of_text) : nullptr;
  if (end_of_text) generation["pad_token_id"] = *end_of_text;  // otherwise `transformers` warns for each text
  if (end_of_documents) config["megalith"] = {{"isolate_documents", true}, {"end_of_text", *end_of_documents}};
  write_file(folder + generation_file, json_text(generation, 1) + "\n");
  write_file(folder + config_file, json_text(config, 1) + "\n");
}

}  // namespace megalith
