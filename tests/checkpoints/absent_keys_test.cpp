// What a config.json means by a key that it does not have, family by family, and by rotary keys in several places; and
// keys that are not known.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoints/hugging_face.h"
#include "checkpoints/peft_folder.h"
#include "kernels/system/files.h"
#include "tests/checkpoints/helpers.h"
#include "tests/python.h"

namespace megalith {
namespace {

using namespace test;
using Json = nlohmann::json;

// A model whose every number is another than the default of `transformers`.
Json full(const std::string& type) {
  Json config = {{"model_type", type},       {"num_hidden_layers", 2},     {"hidden_size", 64},
                 {"num_attention_heads", 4}, {"vocab_size", 96},           {"max_position_embeddings", 80},
                 {"intermediate_size", 48},  {"tie_word_embeddings", true}};
  if (type == "gpt_neox") {
    config.update({{"layer_norm_eps", 1e-3},
                   {"use_parallel_residual", false},
                   {"rotary_pct", 0.5},
                   {"rotary_emb_base", 500},
                   {"hidden_act", "gelu_new"}});
  } else {
    config.update({{"num_key_value_heads", 2}, {"rms_norm_eps", 1e-3}, {"rope_theta", 500}, {"hidden_act", "silu"}});
    if (type != "qwen2") config["head_dim"] = 32;
  }
  return config;
}

Json without(Json config, const std::string& key) {
  config.erase(key);
  return config;
}
Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

// Each test is a config and what is expected of it.
struct Row {
  std::string name;
  Json config;
  std::function<void(const ModelConfig&)> expect;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3", "gpt_neox"}) {
    const bool is_neox = type == "gpt_neox";
    const auto add = [&](const std::string& name, const Json& config, std::function<void(const ModelConfig&)> expect) {
      all.push_back({type + ": " + name, config, std::move(expect)});
    };
    const Json whole = full(type);
    add("all", whole, [=](const ModelConfig& m) {
      EXPECT_TRUE(m.tied_head);
      EXPECT_EQ(m.rotary_base, 500);
      EXPECT_EQ(m.norm_epsilon, 1e-3);
    });
    add("no tie_word_embeddings", without(whole, "tie_word_embeddings"),
        [](const ModelConfig& m) { EXPECT_FALSE(m.tied_head); });
    add("no epsilon", without(whole, is_neox ? "layer_norm_eps" : "rms_norm_eps"),
        [=](const ModelConfig& m) { EXPECT_EQ(m.norm_epsilon, is_neox ? 1e-5 : 1e-6); });
    if (type != "qwen2" && !is_neox)
      add("no head_dim", without(whole, "head_dim"),
          [=](const ModelConfig& m) { EXPECT_EQ(m.size_of_head(), type == "qwen3" ? 128 : 16); });
    if (type == "llama")
      add("no num_key_value_heads", without(whole, "num_key_value_heads"),
          [](const ModelConfig& m) { EXPECT_EQ(m.kv_heads(), 4); });
    if (is_neox) {
      add("no rotary_pct", without(whole, "rotary_pct"), [](const ModelConfig& m) { EXPECT_EQ(m.rotary_share, 0.25); });
      add("no use_parallel_residual", without(whole, "use_parallel_residual"),
          [](const ModelConfig& m) { EXPECT_TRUE(m.parallel_residual); });
      add("no hidden_act", without(whole, "hidden_act"),
          [](const ModelConfig& m) { EXPECT_EQ(m.activation, Activation::gelu_erf); });
    }
    // Rotary keys in two places.
    const char* const base = is_neox ? "rotary_emb_base" : "rope_theta";
    const auto based = [](double value) { return [=](const ModelConfig& m) { EXPECT_EQ(m.rotary_base, value); }; };
    const Json said = {{"rope_theta", 700.0}, {"rope_type", "default"}}, silent = {{"rope_type", "default"}};
    add("no base", without(whole, base), based(10000));
    add("rope_parameters alone", with(without(whole, base), {{"rope_parameters", said}}), based(700));
    add("rope_parameters without a base, and one beside it", with(whole, {{"rope_parameters", silent}}), based(500));
    add("rope_parameters with a base, and one beside it", with(whole, {{"rope_parameters", said}}), based(700));
    add("rope_parameters without a base, and none beside it", with(without(whole, base), {{"rope_parameters", silent}}),
        based(10000));
    const Json scaled = {{"rope_type", "llama3"},
                         {"factor", 4.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 40}};
    add("rope_scaling beside rope_parameters", with(whole, {{"rope_parameters", said}, {"rope_scaling", scaled}}),
        [](const ModelConfig& m) {
          EXPECT_EQ(m.rotary_factor, 4);
          EXPECT_EQ(m.rotary_base, 500);
        });
  }
  return all;
}

TEST(AbsentKeys, MeanWhatEachFamilyMeansByThem) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    try {
      row.expect(hugging_face_shape(row.config.dump(), "config.json"));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(AbsentKeys, MeanWhatTransformersMakesOfThem) {
  const std::string python = python_with("transformers");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with transformers";
  const TemporaryFolder folder;
  Json configs = Json::array();
  for (const Row& row : rows()) configs.push_back(row.config);
  write_file(folder / "configs.json", configs.dump());
  ASSERT_EQ(std::system(fmt::format("'{}' '{}/tests/checkpoints/config_values.py' '{}' >'{}' 2>/dev/null", python,
                                    MEGALITH_SOURCE_DIR, folder / "configs.json", folder / "values.json")
                            .c_str()),
            0);
  const Json values = Json::parse(read_file(folder / "values.json"));
  const std::vector<Row> all = rows();
  ASSERT_EQ(values.size(), all.size());
  for (size_t i = 0; i < all.size(); i++) {
    SCOPED_TRACE(all[i].name);
    const ModelConfig m = hugging_face_shape(all[i].config.dump(), "config.json");
    const Json ours = {{"hidden", m.hidden},        {"layers", m.layers},
                       {"heads", m.heads},          {"kv_heads", m.kv_heads()},
                       {"head", m.size_of_head()},  {"features", m.features()},
                       {"vocab", m.vocab},          {"context", m.context},
                       {"tied", m.tied_head},       {"epsilon", m.norm_epsilon},
                       {"base", m.rotary_base},     {"share", m.rotary_share},
                       {"factor", m.rotary_factor}, {"parallel", m.parallel_residual}};
    EXPECT_EQ(values[i], ours);
  }
}

// An unknown key may change the result of the model. A key that is null, or that is known to change nothing, is
// allowed.
TEST(UnknownKeys, OfAModelAreRefusedByName) {
  const Json gpt2 = {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_embd", 64},
                     {"n_head", 4},          {"vocab_size", 96}, {"n_positions", 80}};
  for (const std::string type : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox"}) {
    SCOPED_TRACE(type);
    const Json whole = type == "gpt2" ? gpt2 : full(type);
    for (const auto& [key, value] : {std::pair<std::string, Json>{"attn_logit_softcapping", 30.0},
                                     {"num_experts", 8},
                                     {"logit_scale", 0.5},
                                     {"embedding_multiplier", 12},
                                     {"a_key_of_tomorrow", true}}) {
      const std::string said = message_of([&] {
        hugging_face_shape(with(whole, {{key, value}}).dump(), "config.json");
      });
      EXPECT_NE(said.find("config.json: " + key + " = " + value.dump()), std::string::npos) << said;
      EXPECT_NO_THROW(hugging_face_shape(with(whole, {{key, nullptr}}).dump(), "config.json")) << key;
    }
    EXPECT_NO_THROW(hugging_face_shape(with(whole, {{"use_cache", true}, {"transformers_version", "5.0.0"}}).dump(),
                                       "config.json"));
  }
}

TEST(UnknownKeys, OfAdaptersAreRefusedByName) {
  const Json plain = {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"bias", "none"}, {"lora_dropout", 0.1}};
  AdapterConfig here;
  here.rank = 4;
  here.alpha = 8;
  EXPECT_NO_THROW(check_peft_config(plain.dump(), "adapter_config.json", here));
  for (const auto& [key, value] : {std::pair<std::string, Json>{"alora_invocation_tokens", {1, 2}},
                                   {"use_dora", true},
                                   {"use_rslora", true},
                                   {"rank_pattern", {{"q_proj", 8}}},
                                   {"layers_to_transform", {0}},
                                   {"modules_to_save", {"lm_head"}},
                                   {"a_key_of_tomorrow", true}}) {
    const std::string said = message_of([&] {
      check_peft_config(with(plain, {{key, value}}).dump(), "adapter_config.json", here);
    });
    EXPECT_NE(said.find("adapter_config.json: " + key + " = "), std::string::npos) << said;
    EXPECT_NO_THROW(check_peft_config(with(plain, {{key, nullptr}}).dump(), "adapter_config.json", here)) << key;
  }
}

}  // namespace
}  // namespace megalith
