#include "checkpoints/decoder_family.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

using Json = nlohmann::json;
using Names = std::map<std::string, std::vector<std::string>>;  // our name, and their names in the order of our rows

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

// Returns the names of the tensors that hold a parameter.
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

// The keys of a config.json, read into a model or written from it. Null counts as absent.
class Keys {
 public:
  Keys(const Json& config, std::string path) : config_(config), path_(std::move(path)) {}
  explicit Keys(nlohmann::ordered_json& to) : to_(&to) {}

  bool writes() const { return to_ != nullptr; }
  bool has(const char* key) const {
    read_.insert(key);
    return config_.contains(key) && !config_.at(key).is_null();
  }
  // Refuses a key that has a value and was not read: its effect is unknown.
  void check_no_other() const {
    const std::string other =
        unknown_key(config_, [&](const std::string& key) { return read_.contains(key) || is_without_effect(key); });
    CHECK(
        other.empty(),
        "{}: {} = {}; megalith does not know this key, which may change the model's results; remove it if it does not",
        path_, other, json_text(config_.at(other)));
  }
  Json value(const char* key, const Json& otherwise) const { return has(key) ? config_.at(key) : otherwise; }

  // Reads or writes a positive number. An absent key is an Error, or means `otherwise`.
  void positive(const char* key, int64_t& value, std::optional<int64_t> otherwise = {}) const {
    if (writes()) return put(key, value);
    CHECK(has(key) || otherwise, "{} has no {}", path_, key);
    if (!has(key)) {
      value = *otherwise;
      return;
    }
    const Json& found = config_.at(key);
    CHECK(found.is_number_integer() && found > 0, "{}: {} = {}; expected a positive integer", path_, key,
          json_text(found));
    value = whole_number(found);
  }
  void number(const char* key, double& value, double otherwise) const {
    if (writes()) return put(key, value);
    const Json found = this->value(key, otherwise);
    CHECK(found.is_number(), "{}: {} = {}; expected a number", path_, key, json_text(found));
    value = found.get<double>();
  }
  void boolean(const char* key, bool& value, bool otherwise) const {
    if (writes()) return put(key, value);
    const Json found = this->value(key, otherwise);
    CHECK(found.is_boolean(), "{}: {} = {}; expected true or false", path_, key, json_text(found));
    value = found.get<bool>();
  }
  // Writes the first value for all models; accepts any of `allowed`, which mean the same.
  void always(const char* key, const std::vector<Json>& allowed) const {
    if (writes()) return put(key, allowed.front());
    if (has(key) && std::ranges::find(allowed, config_.at(key)) == allowed.end())
      refuse(key, fmt::format("with {} = {}", key, json_text(allowed.front())));
  }
  void put(const char* key, const nlohmann::ordered_json& value) const { (*to_)[key] = value; }
  // Refuses a value, and reports the only supported one.
  [[noreturn]] void refuse(const char* key, const std::string& done) const {
    FAIL("{}: {} = {}; megalith trains only models {}", path_, key, json_text(config_.at(key)), done);
  }

  const Json& all() const { return config_; }
  const std::string& path() const { return path_; }

 private:
  const Json config_;
  const std::string path_;
  mutable std::set<std::string> read_;
  nlohmann::ordered_json* to_ = nullptr;
};

// Llama 3's scaling of frequencies, in a nested object.
void scaling(const Keys& keys, ModelConfig& m) {
  std::string type = m.rotary_factor == 1 ? "default" : "llama3";
  if (keys.writes()) {
    keys.put("rope_type", type);
  } else {
    const Json found = keys.value("rope_type", keys.value("type", "default"));
    CHECK(found == "default" || found == "llama3",
          "{}: rope_type = {}; megalith trains only models with default and llama3", keys.path(), json_text(found));
    type = found.get<std::string>();
  }
  if (type == "default") return;
  keys.number("factor", m.rotary_factor, 1);
  keys.number("low_freq_factor", m.rotary_low, 1);
  keys.number("high_freq_factor", m.rotary_high, 4);
  keys.positive("original_max_position_embeddings", m.rotary_context);
}

// Version 5 of `transformers` has all rotary settings in rope_parameters; version 4 has separate keys. A family without
// a key for the share turns whole heads.
void rotary(const Keys& keys, ModelConfig& m, const char* base, const char* share, double default_share) {
  constexpr const char *share_of_5 = "partial_rotary_factor", *of_5 = "rope_parameters", *of_4 = "rope_scaling";
  const auto read_share = [&](const Keys& from, const char* key, double otherwise) {
    if (share) return from.number(key, m.rotary_share, otherwise);
    if (!from.writes()) from.always(key, {1.0});
  };
  m.positions = Positions::rotary;
  if (keys.writes()) {
    nlohmann::ordered_json all = nlohmann::ordered_json::object(), scaled = nullptr;
    const Keys inner(all);
    inner.number("rope_theta", m.rotary_base, 0);
    read_share(inner, share_of_5, 0);
    scaling(inner, m);
    if (m.rotary_factor != 1) scaling(Keys(scaled), m);
    keys.put(of_5, all);
    keys.number(base, m.rotary_base, 0);
    read_share(keys, share, 0);
    keys.put(of_4, scaled);
    return;
  }
  for (const char* key : {of_5, of_4})
    if (!keys.value(key, Json::object()).is_object())
      keys.refuse(key, "whose rotary positions are described by an object");
  // If both are present, version 5 reads only rope_scaling.
  const char* form = keys.value(of_4, Json::object()).empty() ? of_5 : of_4;
  keys.has(of_5);
  const Keys inner(keys.value(form, Json::object()), keys.path() + ": " + form);
  keys.number(base, m.rotary_base, 10000);
  read_share(keys, share ? share : share_of_5, default_share);
  inner.number("rope_theta", m.rotary_base, m.rotary_base);
  read_share(inner, share_of_5, m.rotary_share);
  scaling(inner, m);
  inner.check_no_other();
}

void sizes(const Keys& keys, ModelConfig& m) {
  keys.positive("num_hidden_layers", m.layers);
  keys.positive("hidden_size", m.hidden);
  keys.positive("num_attention_heads", m.heads);
  keys.positive("vocab_size", m.vocab);
  keys.positive("max_position_embeddings", m.context);
  keys.positive("intermediate_size", m.feed_forward);
  keys.boolean("tie_word_embeddings", m.tied_head, false);
}

// A window has an effect if it is shorter than the context.
void windows(const Keys& keys, const ModelConfig& m, const std::string& type) {
  if (keys.writes()) {
    if (type != "llama") keys.put("sliding_window", nullptr);
    if (type.starts_with("qwen")) keys.put("use_sliding_window", false);
    return;
  }
  const Json layers = keys.value("layer_types", Json::array());
  int64_t sliding = 0;
  for (const Json& layer : layers) {
    if (layer != "full_attention" && layer != "sliding_attention")
      keys.refuse("layer_types", "with full_attention in every layer");
    sliding += layer == "sliding_attention";
  }
  int64_t window = m.context;
  if (type.starts_with("qwen")) {
    bool used = false;
    keys.boolean("use_sliding_window", used, false);
    int64_t first = m.layers;  // first layer with a window
    if (keys.value("max_window_layers", 28).is_number_integer())
      first = keys.value("max_window_layers", 28).get<int64_t>();
    if (used) keys.positive("sliding_window", window, 4096);
    keys.has("sliding_window");
    const bool acts = layers.empty() ? first < m.layers : sliding > 0;
    if (!used && sliding > 0)
      keys.refuse("layer_types", "with full_attention in every layer, or with a sliding_window");
    if (acts && window < m.context)
      keys.refuse("use_sliding_window", "without a sliding window shorter than the context");
    return;
  }
  if (sliding > 0) {
    int64_t theirs = 0;
    if (keys.has("sliding_window")) keys.positive("sliding_window", theirs);
    if (theirs < m.context) keys.refuse("layer_types", "with full_attention in every layer");
  }
  // transformers' Mistral has a window of 4096 if the key is absent, and no window if it is null.
  if (type == "mistral" && !keys.all().contains("sliding_window"))
    CHECK(m.context <= 4096,
          "{} has no sliding_window, which means 4096, and max_position_embeddings = {}; megalith trains only models "
          "without a sliding window shorter than the context: write null",
          keys.path(), m.context);
  keys.positive("sliding_window", window, m.context);
  if (window < m.context) keys.refuse("sliding_window", "without a sliding window shorter than the context");
}

void llama_choices(const Keys& keys, ModelConfig& m, const std::string& type) {
  sizes(keys, m);
  keys.positive("num_key_value_heads", m.key_value_heads,
                type == "llama" ? std::optional<int64_t>(m.heads) : std::nullopt);
  if (type == "qwen3" && !keys.writes()) m.head_size = 128;  // the default of `transformers`
  // Qwen 2 has the key only if it differs from the default.
  const bool says_head = keys.writes() ? type != "qwen2" || m.head_size * m.heads != m.hidden : keys.has("head_dim");
  if (says_head) keys.positive("head_dim", m.head_size);
  m.query_key_norm = type == "qwen3";
  m.norm = NormKind::rms;
  keys.number("rms_norm_eps", m.norm_epsilon, 1e-6);
  m.activation = Activation::swiglu;
  keys.always("hidden_act", {"silu"});
  if (type == "qwen3") keys.always("attention_bias", {false});
  if (type == "llama") {
    bool of_attention = m.bias;
    keys.boolean("attention_bias", of_attention, false);
    keys.boolean("mlp_bias", m.bias, false);
    if (m.bias != of_attention)
      keys.refuse(of_attention ? "attention_bias" : "mlp_bias", "with both attention_bias and mlp_bias, or neither,");
  } else {
    m.bias = false;
  }
  m.qkv_bias = type == "qwen2" || m.bias;
  rotary(keys, m, "rope_theta", nullptr, 1);
  windows(keys, m, type);
}

void neox_choices(const Keys& keys, ModelConfig& m) {
  sizes(keys, m);
  keys.number("layer_norm_eps", m.norm_epsilon, 1e-5);
  if (keys.writes()) {
    keys.put("hidden_act", m.activation == Activation::gelu ? "gelu_new" : "gelu");
  } else {
    m.activation = keys.value("hidden_act", "gelu") == "gelu" ? Activation::gelu_erf : Activation::gelu;
    keys.always("hidden_act", {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  }
  keys.always("attention_bias", {true});
  keys.always("hidden_dropout", {0.0});
  keys.boolean("use_parallel_residual", m.parallel_residual, true);
  rotary(keys, m, "rotary_emb_base", "rotary_pct", 0.25);
}

// Reads or writes all keys of a model of a family.
void choices(const Keys& keys, ModelConfig& m, const std::string& type) {
  keys.always("attention_dropout", {0.0});
  if (type == "gpt_neox")
    neox_choices(keys, m);
  else
    llama_choices(keys, m, type);
}

// The model types and their classes in `transformers`.
constexpr std::array<std::pair<const char*, const char*>, 5> classes{{{"llama", "LlamaForCausalLM"},
                                                                      {"mistral", "MistralForCausalLM"},
                                                                      {"qwen2", "Qwen2ForCausalLM"},
                                                                      {"qwen3", "Qwen3ForCausalLM"},
                                                                      {"gpt_neox", "GPTNeoXForCausalLM"}}};
const auto* class_of(const std::string& type) {
  return std::ranges::find(classes, type, [](const auto& row) { return std::string(row.first); });
}

std::string type_of(const Json& config) {
  return config.is_object() && config.contains("model_type") && config["model_type"].is_string()
             ? config["model_type"].get<std::string>()
             : "";
}

}  // namespace

bool is_decoder_family(const Json& config) { return class_of(type_of(config)) != classes.end(); }

ModelConfig decoder_shape(const Json& config, const std::string& path) {
  const Keys keys(config, path);
  if (keys.has("quantization_config")) keys.refuse("quantization_config", "whose weights are not quantised");
  ModelConfig m;
  choices(keys, m, type_of(config));
  keys.check_no_other();
  return m;
}

void check_turned(const ModelConfig& model, const std::string& where) {
  CHECK(model.positions != Positions::rotary || model.rotary_features() % 2 == 0,
        "{}: {} of the {} features of a head are turned in pairs, an odd number; `transformers` computes another model "
        "with it: use an even one",
        where, model.rotary_features(), model.size_of_head());
}

bool is_without_effect(const std::string& key) {
  static const std::set<std::string> keys{
      // The file's kind, and how other programs load and run it.
      "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "name_or_path",
      "_commit_hash", "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "auto_map",
      "use_cache", "torchscript", "use_bfloat16", "tf_legacy_loss", "return_dict", "output_attentions",
      "output_hidden_states", "return_dict_in_generate", "output_scores", "gradient_checkpointing", "unsloth_version",
      "unsloth_fixed", "keys_to_ignore_at_inference", "pretraining_tp", "chunk_size_feed_forward", "megalith",
      "reorder_and_upcast_attn", "ep_tp", "use_flash_attention", "_flash_attn_2_enabled",
      // Initial weights, other heads, other kinds of models.
      "initializer_range", "classifier_dropout", "id2label", "label2id", "num_labels", "problem_type",
      "finetuning_task", "task_specific_params", "summary_type", "summary_use_proj", "summary_activation",
      "summary_proj_to_labels", "summary_first_dropout", "is_decoder", "is_encoder_decoder", "tie_encoder_decoder",
      "max_window_layers", "n_ctx", "max_sequence_length",
      // Generation, which generation_config.json decides.
      "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id",
      "tokenizer_class", "prefix", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
      "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
      "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences"};
  return keys.contains(key);
}

std::span<const char* const> decoder_families() {
  static constexpr const char* tried[] = {"llama", "qwen2", "qwen3", "gpt_neox"};
  return tried;
}

nlohmann::ordered_json decoder_config(const std::string& model_type, const ModelConfig& model) {
  nlohmann::ordered_json config = {{"architectures", {class_of(model_type)->second}}, {"model_type", model_type}};
  ModelConfig nearest = model;
  choices(Keys(config), nearest, model_type);
  return config;
}

std::vector<DecoderTensor> decoder_tensors(const std::string& model_type, const ModelConfig& model,
                                           const std::string& parameter, const std::vector<int64_t>& shape) {
  const std::vector<std::string> names = names_of(model_type == "gpt_neox" ? neox() : llama(), parameter);
  std::vector<DecoderTensor> tensors;
  int64_t first = 0;
  for (const std::string& name : names) {
    // q, k and v have the rows of their heads; all others share the rows equally.
    int64_t rows = shape[0] / std::ssize(names);
    if (names.size() == 3)
      rows = (name.find("q_proj") != std::string::npos ? model.heads : model.kv_heads()) * model.size_of_head();
    tensors.push_back({name, first, shape});
    tensors.back().shape[0] = rows;
    first += rows;
  }
  return tensors;
}

bool is_head_by_head(const std::string& model_type, const std::string& parameter) {
  return model_type == "gpt_neox" && parameter.find("attn.c_attn") != std::string::npos;
}

int64_t row_head_by_head(int64_t row, int64_t heads, int64_t head_size) {
  const int64_t kind = row / (heads * head_size), head = row / head_size % heads;
  return (head * 3 + kind) * head_size + row % head_size;
}

}  // namespace megalith
