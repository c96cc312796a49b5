#include "checkpoints/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/ranges.h>

#include "checkpoints/decoder_folder.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr const char* weights_file = "/model.safetensors";
constexpr const char* config_file = "/config.json";
constexpr const char* names_prefix = "transformer.";
constexpr const char* ours_key = "megalith";  // key in config.json of settings that `transformers` does not have

std::string ours(const std::string& name) { return std::string(parameters_path) + name; }

// Returns whether this is a causal mask, which old versions of `transformers` saved like a weight.
bool is_mask(const std::string& name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

std::vector<int64_t> reversed(std::vector<int64_t> shape) {
  std::reverse(shape.begin(), shape.end());
  return shape;
}

// Refuses a setting that is present with a value that is not allowed.
void require(const nlohmann::json& config, const std::string& path, const char* key,
             const std::vector<nlohmann::json>& allowed) {
  if (!config.contains(key)) return;
  for (const nlohmann::json& value : allowed)
    if (config[key] == value) return;
  FAIL("{}: {} = {}; megalith trains only models with {} = {}", path, key, json_text(config[key]), key,
       json_text(allowed[0]));
}

int64_t positive(const nlohmann::json& config, const std::string& path, const char* key) {
  CHECK(config.contains(key), "{} has no {}", path, key);
  CHECK(config[key].is_number_integer() && config[key] > 0, "{}: {} = {}; expected a positive integer", path, key,
        json_text(config[key]));
  return whole_number(config[key]);
}

}  // namespace

bool is_hugging_face_folder(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(folder + config_file, ignored) || has_safetensors(folder) || !weight_files(folder).empty();
}

namespace {

// Called first: each family has its own names for the other keys.
void check_family(const nlohmann::json& config, const std::string& path) {
  const nlohmann::json architectures = config.value("architectures", nlohmann::json());
  const bool is_named = architectures.is_array() && !architectures.empty() && architectures[0].is_string();
  CHECK(!config.contains("model_type") || config["model_type"] == "gpt2",
        "{}: model_type = {}; megalith reads gpt2, llama, mistral, qwen2, qwen3 and gpt_neox", path,
        json_text(config["model_type"]));
  if (!config.contains("model_type") && is_named)
    CHECK(architectures[0].get<std::string>().starts_with("GPT2"),
          "{}: architectures = {}; megalith trains only models of the family GPT2", path, json_text(architectures));
}

ModelConfig shape_from(const nlohmann::json& config, const std::string& path) {
  CHECK(config.is_object(), "{} is not a JSON object", path);
  if (is_decoder_family(config)) {
    const ModelConfig m = decoder_shape(config, path);
    check_shape(m, path);
    check_turned(m, path);
    return m;
  }
  check_family(config, path);
  ModelConfig m;
  m.layers = positive(config, path, "n_layer");
  m.hidden = positive(config, path, "n_embd");
  m.heads = positive(config, path, "n_head");
  m.vocab = positive(config, path, "vocab_size");
  m.context = positive(config, path, "n_positions");
  CHECK(m.hidden % m.heads == 0, "{}: n_head = {} does not divide n_embd = {}", path, m.heads, m.hidden);
  check_shape(m, path);
  require(config, path, "n_inner", {m.features(), nullptr});
  require(config, path, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});  // two names of the tanh form
  require(config, path, "layer_norm_epsilon", {1e-5});
  require(config, path, "tie_word_embeddings", {true});
  require(config, path, "scale_attn_weights", {true});
  require(config, path, "scale_attn_by_inverse_layer_idx", {false});
  require(config, path, "add_cross_attention", {false});
  static const std::set<std::string> read{"n_layer",
                                          "n_embd",
                                          "n_head",
                                          "vocab_size",
                                          "n_positions",
                                          "n_inner",
                                          "activation_function",
                                          "layer_norm_epsilon",
                                          "tie_word_embeddings",
                                          "scale_attn_weights",
                                          "scale_attn_by_inverse_layer_idx",
                                          "add_cross_attention",
                                          "attn_pdrop",
                                          "embd_pdrop",
                                          "resid_pdrop"};
  const std::string other =
      unknown_key(config, [](const std::string& key) { return read.contains(key) || is_without_effect(key); });
  CHECK(other.empty(),
        "{}: {} = {}; megalith does not know this key, which may change the model's results; remove it if it does not",
        path, other, json_text(config[other]));
  return m;
}

std::optional<int64_t> end_of_documents_from(const nlohmann::json& config, const std::string& path) {
  if (!config.is_object() || !config.contains(ours_key)) return {};
  const nlohmann::json& of_ours = config[ours_key];
  if (!of_ours.is_object() || of_ours.value("isolate_documents", nlohmann::json(false)) == false) return {};
  const nlohmann::json token = of_ours.value("end_of_text", nlohmann::json());
  CHECK(token.is_number_integer() && token >= 0 && token < config.value("vocab_size", nlohmann::json(0)),
        "{}: {}.end_of_text = {}; expected the token at which documents end, 0 to vocab_size - 1", path, ours_key,
        json_text(token));
  return whole_number(token);
}

std::optional<double> dropout_from(const nlohmann::json& config, const std::string& path) {
  if (is_decoder_family(config)) return 0;
  std::optional<double> dropout;
  for (const char* key : hugging_face_dropouts) {
    const nlohmann::json value = config.value(key, nlohmann::json(0.1));  // the default of `transformers`
    CHECK(value.is_number() && value >= 0 && value < 1, "{}: {} = {}; expected a probability from 0 to below 1", path,
          key, json_text(value));
    if (dropout && *dropout != value.get<double>()) return {};
    dropout = value.get<double>();
  }
  return dropout;
}

// Parses the text and calls `read`.
template <class Read>
auto of_config(std::string_view text, const std::string& path, Read read) {
  try {
    return read(parse_json(text), path);
  } catch (const nlohmann::json::exception& e) {
    FAIL("{} is not the JSON of a model: {}", path, e.what());
  }
}

}  // namespace

ModelConfig hugging_face_shape(std::string_view text, const std::string& path) {
  return of_config(text, path, shape_from);
}

std::optional<int64_t> hugging_face_end_of_documents(std::string_view text, const std::string& path) {
  return of_config(text, path, end_of_documents_from);
}

std::optional<double> hugging_face_dropout(std::string_view text, const std::string& path) {
  return of_config(text, path, dropout_from);
}

std::optional<double> read_hugging_face_dropout(const std::string& folder) {
  const std::string path = folder + config_file;
  return hugging_face_dropout(read_file(path), path);
}

std::optional<int64_t> read_hugging_face_end_of_documents(const std::string& folder) {
  const std::string path = folder + config_file;
  return hugging_face_end_of_documents(read_file(path), path);
}

ModelConfig read_hugging_face_shape(const std::string& folder) {
  const std::string path = folder + config_file;
  return hugging_face_shape(read_file(path), path);
}

std::unique_ptr<TensorSource> open_hugging_face(const std::string& folder, const ModelConfig& model,
                                                const std::vector<StoredParameter>& parameters) {
  const std::string path = folder + config_file;
  if (of_config(read_file(path), path,
                [](const nlohmann::json& config, const auto&) { return is_decoder_family(config); }))
    return std::make_unique<DecoderReader>(folder, model, parameters);
  return std::make_unique<HuggingFaceReader>(folder, parameters);
}

HuggingFaceReader::HuggingFaceReader(const std::string& folder, const std::vector<StoredParameter>& parameters)
    : tensors_(folder) {
  std::map<std::string, std::string> unclaimed;  // name without prefix -> name in the file
  for (const auto& [name, file] : tensors_.files()) {
    const std::string bare = name.starts_with(names_prefix) ? name.substr(std::string(names_prefix).size()) : name;
    CHECK(unclaimed.emplace(bare, name).second, "{} has {} with and without '{}'", tensors_.path(), bare, names_prefix);
  }
  for (const StoredParameter& p : parameters) {
    const auto it = unclaimed.find(p.name);
    CHECK(it != unclaimed.end(), "{} has no {}, a parameter of the model in its config.json", tensors_.path(), p.name);
    const SafeTensors::Entry& e = tensors_.entry(it->second);
    const std::vector<int64_t> expected = p.transposed ? reversed(p.shape) : p.shape;
    CHECK(e.shape == expected, "{}: {} has shape ({}), expected ({}) from config.json", tensors_.path(), it->second,
          fmt::join(e.shape, ", "), fmt::join(expected, ", "));
    CHECK(e.dtype == "F32" || e.dtype == "F16" || e.dtype == "BF16",
          "{}: {} is stored as {}; F32, F16 and BF16 can be read", tensors_.path(), it->second, e.dtype);
    stored_.emplace(ours(p.name), StoredParameter{it->second, p.shape, p.transposed});
    unclaimed.erase(it);
  }
  if (const auto it = unclaimed.find("lm_head.weight"); it != unclaimed.end()) {
    check_tied(it->second);
    unclaimed.erase(it);
  }
  for (const auto& [bare, name] : unclaimed)
    CHECK(is_mask(bare), "{} has {}, which is not a parameter of the model in its config.json", tensors_.path(), name);
}

void HuggingFaceReader::check_tied(const std::string& head) const {
  const StoredParameter& table = stored(ours("wte.weight"));
  const int64_t rows = table.shape[0], cols = table.shape[1];
  CHECK(tensors_.entry(head).shape == table.shape, "{}: {} has another shape than wte.weight", tensors_.path(), head);
  std::vector<float> a(static_cast<size_t>(cols)), b(a.size());
  for (int64_t row = 0; row < rows; row++) {
    tensors_.read(head, row * cols, 1, cols, a.data());
    tensors_.read(table.name, row * cols, 1, cols, b.data());
    CHECK(a == b, "{}: row {} of {} differs from wte.weight; in megalith's GPT-2 the head and the embedding are tied",
          tensors_.path(), row, head);
  }
}

const StoredParameter& HuggingFaceReader::stored(const std::string& name) const {
  const auto it = stored_.find(name);
  CHECK(it != stored_.end(), "{} has no {}", tensors_.path(), name);
  return it->second;
}

std::vector<int64_t> HuggingFaceReader::shape(const std::string& name) const { return stored(name).shape; }

void HuggingFaceReader::read(const TensorShard& wanted, float* out) {
  check_shard(wanted);
  const StoredParameter& s = stored(wanted.name);
  CHECK(s.shape == wanted.shape, "{}: {} has shape ({}), expected ({}); is it another model?", tensors_.path(),
        wanted.name, fmt::join(s.shape, ", "), fmt::join(wanted.shape, ", "));
  const int64_t rows = wanted.rows(), cols = wanted.cols(), width = wanted.columns.size();
  for (int64_t position = wanted.elements.begin; position < wanted.elements.end;) {
    const int64_t row = position / width, col = wanted.columns.begin + position % width;
    const int64_t count = std::min(wanted.columns.end - col, wanted.elements.end - position);
    if (s.transposed)
      tensors_.read(s.name, col * rows + row, rows, count, out);
    else
      tensors_.read(s.name, row * cols + col, 1, count, out);
    out += count;
    position += count;
  }
}

}  // namespace megalith
