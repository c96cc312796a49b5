// Writes the exports of hugging_face.h.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include <fmt/ranges.h>

#include "checkpoints/decoder_family.h"
#include "checkpoints/hugging_face.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "kernels/system/long_work.h"

namespace megalith {
namespace {

// A tensor to be written: rows of one of our parameters, in the order of the file.
struct WrittenTensor {
  std::string name;
  std::vector<int64_t> shape;  // our parameter's
  const StoredParameter* parameter;
  int64_t first_row = 0;
  bool head_by_head = false;
};
using WrittenTensors = std::span<const WrittenTensor>;

std::string ours_of(const StoredParameter& p) { return std::string(parameters_path) + p.name; }

int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Checks that the source has the parameter, possibly with more rows, and returns its shape there.
std::vector<int64_t> shape_in(const TensorSource& source, const StoredParameter& p, const ExportForm& form) {
  std::vector<int64_t> found = source.shape(ours_of(p));
  const bool cut =
      form.cuts_table && p.name == "wte.weight" && found.size() == 2 && found[0] > p.shape[0] && found[1] == p.shape[1];
  CHECK(cut || found == p.shape, "{} has shape ({}), expected ({}) for this model", p.name, fmt::join(found, ", "),
        fmt::join(p.shape, ", "));
  return found;
}

std::vector<WrittenTensor> tensors_of(const std::string& family, const ModelConfig& model,
                                      const std::vector<StoredParameter>& parameters) {
  std::vector<WrittenTensor> all;
  for (const StoredParameter& p : parameters)
    if (family == gpt2_family)
      all.push_back({"transformer." + p.name, p.shape, &p});
    else
      for (const DecoderTensor& t : decoder_tensors(family, model, p.name, p.shape))
        all.push_back({t.name, t.shape, &p, t.first_row, is_head_by_head(family, p.name)});
  return all;
}

bool is_transposed(const std::string& family, const WrittenTensor& t) {
  return family == gpt2_family && t.parameter->transposed;
}

// Divides tensors into files of at most form.most_bytes, or of one tensor.
std::vector<WrittenTensors> files_of(WrittenTensors all, const ExportForm& form) {
  std::vector<WrittenTensors> files;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < all.size(); i++) {
    const int64_t more = numel_of(all[i].shape) * size_of(form.type);
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

// Moves the rows of q, k and v to their places in GPT-NeoX.
std::vector<float> sorted_by_heads(const std::vector<float>& data, const ModelConfig& model, int64_t rows) {
  std::vector<float> sorted(data.size());
  const int64_t width = std::ssize(data) / rows;
  for (int64_t row = 0; row < rows; row++)
    std::copy_n(data.begin() + row * width, width,
                sorted.begin() + row_head_by_head(row, model.heads, model.size_of_head()) * width);
  return sorted;
}

void write_tensors(TensorSource& source, const std::string& family, const ModelConfig& model, WrittenTensors tensors,
                   const ExportForm& form, const std::string& path, LongWork& work) {
  std::vector<SafeTensorsWriter::Declared> declared;
  for (const WrittenTensor& t : tensors) {
    declared.push_back({t.name, t.shape});
    if (is_transposed(family, t)) std::ranges::reverse(declared.back().shape);
  }
  SafeTensorsWriter weights(path, declared, form.type);
  for (const WrittenTensor& t : tensors) {
    const int64_t numel = numel_of(t.shape), rows = t.shape[0], width = numel / rows;
    std::vector<float> data(static_cast<size_t>(numel));
    source.read(flat_shard(ours_of(*t.parameter), shape_in(source, *t.parameter, form),
                           {t.first_row * width, t.first_row * width + numel}),
                data.data());
    if (t.head_by_head) data = sorted_by_heads(data, model, rows);
    work.advance(numel);
    if (!is_transposed(family, t)) {
      weights.append(data.data(), numel);
      continue;
    }
    std::vector<float> row(static_cast<size_t>(rows));  // one row in the file is one column of ours
    for (int64_t i = 0; i < width; i++) {
      for (int64_t o = 0; o < rows; o++) row[static_cast<size_t>(o)] = data[static_cast<size_t>(o * width + i)];
      weights.append(row.data(), rows);
    }
  }
  weights.finish();
}

// Returns a model with explicit sizes and without settings that have no effect, so that equal models compare equal.
ModelConfig written_out(ModelConfig m) {
  m.feed_forward = m.features();
  m.key_value_heads = m.kv_heads();
  m.head_size = m.size_of_head();
  const ModelConfig defaults;
  if (m.positions == Positions::learned) {
    m.rotary_base = defaults.rotary_base;
    m.rotary_share = defaults.rotary_share;
    m.rotary_factor = defaults.rotary_factor;
  }
  if (m.rotary_factor == 1) {
    m.rotary_low = defaults.rotary_low;
    m.rotary_high = defaults.rotary_high;
    m.rotary_context = defaults.rotary_context;
  }
  return m;
}

// Returns the family's model that is nearest to such a model.
ModelConfig nearest(const std::string& family, const ModelConfig& model) {
  if (family != gpt2_family)
    return written_out(decoder_shape(nlohmann::json(decoder_config(family, model)), "config.json"));
  ModelConfig gpt2;  // all its settings are defaults
  gpt2.layers = model.layers;
  gpt2.hidden = model.hidden;
  gpt2.heads = model.heads;
  gpt2.vocab = model.vocab;
  gpt2.context = model.context;
  return written_out(gpt2);
}

nlohmann::ordered_json gpt2_config(const ModelConfig& model) {
  nlohmann::ordered_json config = {{"architectures", {"GPT2LMHeadModel"}},
                                   {"model_type", gpt2_family},
                                   {"vocab_size", model.vocab},
                                   {"n_positions", model.context},
                                   {"n_ctx", model.context},
                                   {"n_embd", model.hidden},
                                   {"n_layer", model.layers},
                                   {"n_head", model.heads},
                                   {"n_inner", nullptr},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"tie_word_embeddings", true}};
  // Written even without dropout: `transformers` would use 0.1.
  for (const char* key : hugging_face_dropouts) config[key] = model.dropout;
  return config;
}

// Refuses a token that the model does not have.
void check_token(std::optional<int64_t> token, const ModelConfig& model, const char* done) {
  CHECK(!token || (0 <= *token && *token < model.vocab),
        "the token {} {} a text, but the model has {} of them; is it another model's tokenizer?", *token, done,
        model.vocab);
}

}  // namespace

int64_t export_bytes(const std::vector<StoredParameter>& parameters, DType type) {
  int64_t bytes = 0;
  for (const StoredParameter& p : parameters) bytes += numel_of(p.shape) * size_of(type);
  return bytes;
}

std::string exported_family(const ModelConfig& model) {
  const ModelConfig exact = written_out(model);
  std::vector<std::string> families{gpt2_family};
  for (const char* family : decoder_families()) families.emplace_back(family);
  std::optional<size_t> fewest;
  std::string refusal;
  for (const std::string& family : families) {
    const ModelConfig near = nearest(family, exact);
    std::vector<std::string> keys;
    for (const std::string& key : shape_keys())
      if (shape_value(exact, key) != shape_value(near, key)) keys.push_back(key);
    if (keys.empty()) {
      check_turned(model, "model.rotary_share");
      return family;
    }
    if (fewest && keys.size() >= *fewest) continue;
    fewest = keys.size();
    refusal = fmt::format(
        "model.{} = {}: `transformers` has no model of this kind among the families that megalith exports; the "
        "nearest, {}, has {}; megalith's own commands read the checkpoint",
        keys.front(), shape_value(exact, keys.front()), family, shape_value(near, keys.front()));
  }
  FAIL("{}", refusal);
}

void export_hugging_face(TensorSource& source, const ModelConfig& model, const std::vector<StoredParameter>& parameters,
                         const std::string& folder, std::optional<int64_t> end_of_documents, const ExportForm& form) {
  const std::string family = exported_family(model);
  for (const int32_t end : form.generation.ends) check_token(end, model, "ends");
  check_token(form.generation.begin, model, "begins");
  for (const StoredParameter& p : parameters) shape_in(source, p, form);
  const std::vector<WrittenTensor> tensors = tensors_of(family, model, parameters);
  const std::vector<WrittenTensors> files = files_of(tensors, form);
  const std::string index_file = "/model.safetensors.index.json", config_file = "/config.json",
                    generation_file = "/generation_config.json";
  std::vector<std::string> names{config_file, generation_file, "/model.safetensors", index_file};
  for (size_t i = 0; i < files.size(); i++) names.push_back(name_of_file(i, files.size()));
  for (const std::string& name : names) check_nothing_at(folder + name, "choose another folder");
  make_folders(folder, "choose another");

  nlohmann::ordered_json index{{"metadata", {{"total_size", export_bytes(parameters, form.type)}}},
                               {"weight_map", nlohmann::ordered_json::object()}};
  int64_t elements = 0;
  for (const WrittenTensors& file : files)
    for (const WrittenTensor& t : file) elements += numel_of(t.shape);
  LongWork work("writing " + folder, elements);
  for (size_t i = 0; i < files.size(); i++) {
    const std::string name = name_of_file(i, files.size());
    write_tensors(source, family, model, files[i], form, folder + name, work);
    for (const WrittenTensor& t : files[i]) index["weight_map"][t.name] = name.substr(1);
  }
  if (files.size() > 1) write_file(folder + index_file, json_text(index, 1) + "\n");

  nlohmann::ordered_json config =
      family == gpt2_family ? gpt2_config(model) : decoder_config(family, written_out(model));
  config["torch_dtype"] = form.type == DType::f32 ? "float32" : "bfloat16";
  // Always written, since `transformers` would otherwise use its default.
  config["bos_token_id"] = form.generation.begin ? nlohmann::ordered_json(*form.generation.begin) : nullptr;
  config["eos_token_id"] = ends_as_json(form.generation.ends);
  if (end_of_documents) config["megalith"] = {{"isolate_documents", true}, {"end_of_text", *end_of_documents}};
  write_generation_config(form.generation, folder);
  write_file(folder + config_file, json_text(config, 1) + "\n");
}

}  // namespace megalith
