#include "checkpoints/decoder_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include <fmt/ranges.h>

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using Names = std::map<std::string, std::vector<std::string>>;  // ours, and theirs in the order of our rows

// Where the tensors of a family are. Names of a layer follow "h.N." here and `layers`.N. there.
struct Family {
  std::string layers;
  Names of_layer, others;
};

const Family& llama() {
  static const Family family{"model.layers.",
                             {{"ln_1", {"input_layernorm"}},
                              {"attn.c_attn", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                              {"attn.q_norm", {"self_attn.q_norm"}},
                              {"attn.k_norm", {"self_attn.k_norm"}},
                              {"attn.c_proj", {"self_attn.o_proj"}},
                              {"ln_2", {"post_attention_layernorm"}},
                              {"mlp.c_fc", {"mlp.gate_proj", "mlp.up_proj"}},
                              {"mlp.c_proj", {"mlp.down_proj"}}},
                             {{"wte", {"model.embed_tokens"}}, {"ln_f", {"model.norm"}}, {"lm_head", {"lm_head"}}}};
  return family;
}
const Family& neox() {
  static const Family family{
      "gpt_neox.layers.",
      {{"ln_1", {"input_layernorm"}},
       {"attn.c_attn", {"attention.query_key_value"}},
       {"attn.c_proj", {"attention.dense"}},
       {"ln_2", {"post_attention_layernorm"}},
       {"mlp.c_fc", {"mlp.dense_h_to_4h"}},
       {"mlp.c_proj", {"mlp.dense_4h_to_h"}}},
      {{"wte", {"gpt_neox.embed_in"}}, {"ln_f", {"gpt_neox.final_layer_norm"}}, {"lm_head", {"embed_out"}}}};
  return family;
}

// The names of the tensors that hold a parameter.
std::vector<std::string> names_of(const Family& family, const std::string& ours) {
  const size_t dot = ours.rfind('.');
  std::string stem = ours.substr(0, dot), prefix;
  const Names* names = &family.others;
  if (stem.starts_with("h.")) {
    const size_t end = stem.find('.', 2);
    prefix = family.layers + stem.substr(2, end - 2) + ".";
    stem = stem.substr(end + 1);
    names = &family.of_layer;
  }
  const auto found = names->find(stem);
  CHECK(found != names->end(), "no tensor of this family holds {}", ours);
  std::vector<std::string> all;
  for (const std::string& name : found->second) all.push_back(prefix + name + ours.substr(dot));
  return all;
}

// Buffers, which old versions of `transformers` saved like weights.
bool is_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("attention.bias") ||
         name.ends_with("attention.masked_bias");
}

// Reads the keys of a config.json; null is as good as absent.
class Keys {
 public:
  Keys(const Json& config, const std::string& path) : config_(config), path_(path) {}

  bool has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }
  Json value(const char* key, const Json& otherwise) const { return has(key) ? config_.at(key) : otherwise; }
  int64_t positive(const char* key) const {
    CHECK(has(key), "{} has no {}", path_, key);
    const Json& value = config_.at(key);
    CHECK(value.is_number_integer() && value > 0, "{}: {} = {}; expected a positive integer", path_, key,
          json_text(value));
    return whole_number(value);
  }
  int64_t positive(const char* key, int64_t otherwise) const { return has(key) ? positive(key) : otherwise; }
  double number(const char* key, double otherwise) const {
    const Json found = value(key, otherwise);
    CHECK(found.is_number(), "{}: {} = {}; expected a number", path_, key, json_text(found));
    return found.get<double>();
  }
  bool boolean(const char* key, bool otherwise) const {
    const Json found = value(key, otherwise);
    CHECK(found.is_boolean(), "{}: {} = {}; expected true or false", path_, key, json_text(found));
    return found.get<bool>();
  }
  // Refuses a value, with what is done instead.
  [[noreturn]] void refuse(const char* key, const std::string& done) const {
    FAIL("{}: {} = {}; megalith trains models {} only", path_, key, json_text(config_.at(key)), done);
  }
  void require(const char* key, const std::vector<Json>& allowed) const {
    if (has(key) && std::ranges::find(allowed, config_.at(key)) == allowed.end())
      refuse(key, fmt::format("with {} = {}", key, json_text(allowed.front())));
  }

  const Json& all() const { return config_; }
  const std::string& path() const { return path_; }

 private:
  const Json& config_;
  const std::string& path_;
};

// Version 5 of `transformers` has all that is rotary in rope_parameters, version 4 in keys of its own.
void read_rotary(ModelConfig& m, const Keys& keys, const char* base, const char* share, double default_share) {
  m.positions = Positions::rotary;
  const Json none = Json::object();
  const Json of_5 = keys.value("rope_parameters", none), of_4 = keys.value("rope_scaling", none);
  for (const auto& [key, value] : {std::pair{"rope_parameters", of_5}, {"rope_scaling", of_4}})
    if (!value.is_object()) keys.refuse(key, "whose rotary positions are described by an object");
  const bool is_5 = !of_5.empty();
  const Json& scaling = is_5 ? of_5 : of_4;
  const std::string where = keys.path() + (is_5 ? ": rope_parameters" : ": rope_scaling");
  const Keys inner(scaling, where);
  m.rotary_base = is_5 ? inner.number("rope_theta", keys.number(base, 10000)) : keys.number(base, 10000);
  m.rotary_share = is_5 ? inner.number("partial_rotary_factor", keys.number(share, default_share))
                        : keys.number(share, default_share);
  const Json type = inner.value("rope_type", inner.value("type", "default"));
  if (type == "default") return;
  CHECK(type == "llama3", "{}: rope_type = {}; megalith trains models with default and llama3 only", where,
        json_text(type));
  m.rotary_factor = inner.number("factor", 1);
  m.rotary_low = inner.number("low_freq_factor", 1);
  m.rotary_high = inner.number("high_freq_factor", 4);
  m.rotary_context = inner.positive("original_max_position_embeddings");
}

void read_sizes(ModelConfig& m, const Keys& keys) {
  m.layers = keys.positive("num_hidden_layers");
  m.hidden = keys.positive("hidden_size");
  m.heads = keys.positive("num_attention_heads");
  m.vocab = keys.positive("vocab_size");
  m.context = keys.positive("max_position_embeddings");
  m.feed_forward = keys.positive("intermediate_size");
  m.tied_head = keys.boolean("tie_word_embeddings", false);
}

// A window acts if it is shorter than the context.
void refuse_windows(const Keys& keys, const ModelConfig& m, const std::string& type) {
  for (const Json& layer : keys.value("layer_types", Json::array()))
    if (layer != "full_attention") keys.refuse("layer_types", "with full_attention in every layer");
  if (type.starts_with("qwen")) {
    if (keys.boolean("use_sliding_window", false) && keys.positive("sliding_window", 4096) < m.context)
      keys.refuse("use_sliding_window", "without a sliding window that acts");
    return;
  }
  // transformers' Mistral has a window of 4096 where the key is absent, and none where it is null.
  if (type == "mistral" && !keys.all().contains("sliding_window"))
    CHECK(m.context <= 4096,
          "{} has no sliding_window, which means 4096, and max_position_embeddings = {}; megalith "
          "trains models without a sliding window that acts only: write null",
          keys.path(), m.context);
  if (keys.has("sliding_window") && keys.positive("sliding_window") < m.context)
    keys.refuse("sliding_window", "without a sliding window that acts");
}

ModelConfig llama_shape(const Keys& keys, const std::string& type) {
  ModelConfig m;
  read_sizes(m, keys);
  if (type != "llama") CHECK(keys.has("num_key_value_heads"), "{} has no num_key_value_heads", keys.path());
  m.key_value_heads = keys.positive("num_key_value_heads", m.heads);
  if (keys.has("head_dim")) m.head_size = keys.positive("head_dim");
  if (type == "qwen3") {
    m.query_key_norm = true;
    m.head_size = keys.positive("head_dim", 128);  // the default of `transformers`
    keys.require("attention_bias", {false});
  }
  m.norm = NormKind::rms;
  m.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  m.activation = Activation::swiglu;
  keys.require("hidden_act", {"silu"});
  const bool of_attention = type == "llama" && keys.boolean("attention_bias", false);
  m.qkv_bias = type == "qwen2" || of_attention;
  m.bias = type == "llama" && keys.boolean("mlp_bias", false);
  if (type == "llama" && m.bias != of_attention)
    keys.refuse(of_attention ? "attention_bias" : "mlp_bias", "with both attention_bias and mlp_bias, or neither,");
  read_rotary(m, keys, "rope_theta", "partial_rotary_factor", 1);
  refuse_windows(keys, m, type);
  return m;
}

ModelConfig neox_shape(const Keys& keys) {
  ModelConfig m;
  read_sizes(m, keys);
  m.norm_epsilon = keys.number("layer_norm_eps", 1e-5);
  const Json act = keys.value("hidden_act", "gelu");
  m.activation = act == "gelu" ? Activation::gelu_erf : Activation::gelu;
  if (act != "gelu") keys.require("hidden_act", {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  keys.require("attention_bias", {true});
  keys.require("hidden_dropout", {0.0});
  m.parallel_residual = keys.boolean("use_parallel_residual", true);
  read_rotary(m, keys, "rotary_emb_base", "rotary_pct", 0.25);
  return m;
}

std::string path_of(const std::string& name) { return std::string(parameters_path) + name; }

const std::set<std::string> llama_like{"llama", "mistral", "qwen2", "qwen3"};

std::string type_of(const Json& config) {
  return config.is_object() && config.contains("model_type") && config["model_type"].is_string()
             ? config["model_type"].get<std::string>()
             : "";
}

}  // namespace

bool is_decoder_family(const Json& config) {
  return llama_like.contains(type_of(config)) || type_of(config) == "gpt_neox";
}

ModelConfig decoder_shape(const Json& config, const std::string& path) {
  const Keys keys(config, path);
  const std::string type = type_of(config);
  keys.require("attention_dropout", {0.0});
  if (keys.has("quantization_config")) keys.refuse("quantization_config", "whose weights are not quantised");
  const ModelConfig m = type == "gpt_neox" ? neox_shape(keys) : llama_shape(keys, type);
  check_shape(m, path);
  return m;
}

DecoderReader::DecoderReader(const std::string& folder, const ModelConfig& model,
                             const std::vector<StoredParameter>& parameters)
    : tensors_(folder), heads_(model.heads), head_size_(model.size_of_head()) {
  const Family& family = tensors_.files().contains(names_of(neox(), "wte.weight").front()) ? neox() : llama();
  std::set<std::string> unclaimed;
  for (const auto& [name, file] : tensors_.files()) unclaimed.insert(name);
  for (const StoredParameter& p : parameters) {
    Stored stored{.shape = p.shape, .tensors = {}, .head_by_head = false};
    const std::vector<std::string> names = names_of(family, p.name);
    stored.head_by_head = &family == &neox() && p.name.find("attn.c_attn") != std::string::npos;
    int64_t rows = 0;
    for (const std::string& name : names) {
      CHECK(unclaimed.contains(name), "{} holds no {}, a parameter of the model in its config.json", tensors_.path(),
            name);
      unclaimed.erase(name);
      const SafeTensors::Entry& e = tensors_.entry(name);
      CHECK(e.dtype == "F32" || e.dtype == "F16" || e.dtype == "BF16",
            "{}: {} is stored as {}; F32, F16 and BF16 can be read", tensors_.path(), name, e.dtype);
      // q, k and v have the rows of their heads; all others share the rows equally.
      int64_t expected_rows = p.shape[0] / std::ssize(names);
      if (names.size() == 3)
        expected_rows = (name.find("q_proj") != std::string::npos ? model.heads : model.kv_heads()) * head_size_;
      std::vector<int64_t> expected = p.shape;
      expected[0] = expected_rows;
      CHECK(e.shape == expected, "{}: {} has shape ({}), expected ({}) from config.json", tensors_.path(), name,
            fmt::join(e.shape, ", "), fmt::join(expected, ", "));
      stored.tensors.push_back({name, rows});
      rows += expected_rows;
    }
    stored_.emplace(path_of(p.name), std::move(stored));
  }
  const std::string head = names_of(family, "lm_head.weight").front();
  if (unclaimed.erase(head) > 0) check_tied(head);
  for (const std::string& name : unclaimed)
    CHECK(is_buffer(name), "{} holds {}, which is not a parameter of the model in its config.json", tensors_.path(),
          name);
}

void DecoderReader::check_tied(const std::string& head) const {
  const Stored& table = stored(path_of("wte.weight"));
  const int64_t rows = table.shape[0], cols = table.shape[1];
  CHECK(tensors_.entry(head).shape == table.shape, "{}: {} has another shape than the token table", tensors_.path(),
        head);
  std::vector<float> a(static_cast<size_t>(cols)), b(a.size());
  for (int64_t row = 0; row < rows; row++) {
    tensors_.read(head, row * cols, 1, cols, a.data());
    tensors_.read(table.tensors.front().name, row * cols, 1, cols, b.data());
    CHECK(a == b,
          "{}: row {} of {} differs from the token table, and config.json has tie_word_embeddings = true; set false "
          "there if the head is its own",
          tensors_.path(), row, head);
  }
}

const DecoderReader::Stored& DecoderReader::stored(const std::string& name) const {
  const auto it = stored_.find(name);
  CHECK(it != stored_.end(), "{} holds no {}", tensors_.path(), name);
  return it->second;
}

std::vector<int64_t> DecoderReader::shape(const std::string& name) const { return stored(name).shape; }

void DecoderReader::read(const TensorShard& wanted, float* out) {
  check_shard(wanted);
  const Stored& s = stored(wanted.name);
  CHECK(s.shape == wanted.shape, "{}: {} has shape ({}), expected ({}); is it another model?", tensors_.path(),
        wanted.name, fmt::join(s.shape, ", "), fmt::join(wanted.shape, ", "));
  // Seen by output features: a vector has one column, which a shard counts as one row.
  const bool vector = s.shape.size() == 1;
  const int64_t cols = vector ? 1 : s.shape[1], width = vector ? 1 : wanted.columns.size();
  const int64_t first_col = vector ? 0 : wanted.columns.begin, shift = vector ? wanted.columns.begin : 0;
  for (int64_t position = wanted.elements.begin; position < wanted.elements.end;) {
    const int64_t row = shift + position / width, skipped = position % width, col = first_col + skipped;
    int64_t rows = 1, count = std::min(width - skipped, wanted.elements.end - position);
    auto tensor = std::prev(std::ranges::upper_bound(s.tensors, row, {}, &Tensor::first_row));
    int64_t theirs = row - tensor->first_row;
    if (s.head_by_head) {
      const int64_t kind = row / (heads_ * head_size_), head = row / head_size_ % heads_;
      theirs = (head * 3 + kind) * head_size_ + row % head_size_;
    } else if (width == cols && skipped == 0) {  // whole rows, as many as lie together
      const int64_t end = std::next(tensor) == s.tensors.end() ? s.shape[0] : std::next(tensor)->first_row;
      rows = std::max<int64_t>(1, std::min(end - row, (wanted.elements.end - position) / width));
      if (rows > 1) count = rows * width;
    }
    tensors_.read(tensor->name, theirs * cols + col, 1, count, out);
    out += count;
    position += count;
  }
}

}  // namespace megalith
