// Hugging Face folders of other families than GPT-2: both forms of config.json, what is refused, and shards of tensors.
#include "checkpoints/decoder_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/system/files.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {
namespace {

using Json = nlohmann::json;

const std::string families = MEGALITH_SOURCE_DIR "/../shared/reference/families/";
class DecoderFolder : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return families + GetParam(); }
  void SetUp() override {
    if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no reference at " << folder();
  }
};
INSTANTIATE_TEST_SUITE_P(Of, DecoderFolder, testing::Values("llama3", "llama2", "mistral", "qwen2", "qwen3", "neox"),
                         [](const auto& suite) { return std::string(suite.param); });

TEST_P(DecoderFolder, BothFormsOfConfigAreTheReferencesModel) {
  const Json r = Json::parse(read_file(folder() + "/reference.json")).at("recipe");
  for (const char* form : {"/config.json", "/config.v4.json"}) {
    SCOPED_TRACE(form);
    const ModelConfig m = hugging_face_shape(read_file(folder() + form), form);
    for (const auto& [key, value] : std::map<std::string, int64_t>{{"layers", m.layers},
                                                                   {"hidden", m.hidden},
                                                                   {"heads", m.heads},
                                                                   {"kv_heads", m.kv_heads()},
                                                                   {"head_dim", m.size_of_head()},
                                                                   {"ffn", m.features()},
                                                                   {"vocab", m.vocab},
                                                                   {"context", m.context}})
      EXPECT_EQ(r.at(key), value) << key;
    EXPECT_EQ(r.at("norm_eps"), m.norm_epsilon);
    EXPECT_EQ(r.at("theta"), m.rotary_base);
    EXPECT_EQ(r.value("rotary_pct", 1.0), m.rotary_share);
    EXPECT_EQ(r.at("tied"), m.tied_head);
    EXPECT_EQ(r.at("family") == "gpt_neox", m.parallel_residual);
    EXPECT_EQ(r.at("family") == "qwen3", m.query_key_norm);
    EXPECT_EQ(r.contains("rope_scaling") ? 8 : 1, m.rotary_factor);
    EXPECT_EQ(hugging_face_dropout(read_file(folder() + form), form), 0);
  }
}

// Any shard is the same part of the whole.
TEST_P(DecoderFolder, ShardsArePartsOfTheWhole) {
  const ModelConfig model = read_hugging_face_shape(folder());
  const std::vector<StoredParameter> parameters = stored_parameters(model);
  const std::unique_ptr<TensorSource> source = open_hugging_face(folder(), model, parameters);
  std::mt19937 random(3);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (const StoredParameter& p : parameters) {
    const TensorShard whole = whole_tensor("parameters/" + p.name, p.shape);
    std::vector<float> all(static_cast<size_t>(whole.numel()));
    source->read(whole, all.data());
    for (int i = 0; i < 20; i++) {
      TensorShard shard = whole;
      shard.columns.begin = between(0, whole.cols() - 1);
      shard.columns.end = between(shard.columns.begin + 1, whole.cols());
      const int64_t size = whole.rows() * shard.columns.size();
      shard.elements.begin = between(0, size - 1);
      shard.elements.end = between(shard.elements.begin, size);
      std::vector<float> part(static_cast<size_t>(shard.numel()));
      source->read(shard, part.data());
      for (int64_t e = 0; e < shard.numel(); e++) {
        const int64_t at = shard.elements.begin + e, width = shard.columns.size();
        ASSERT_EQ(part[static_cast<size_t>(e)],
                  all[static_cast<size_t>(at / width * whole.cols() + shard.columns.begin + at % width)])
            << describe(shard) << " " << e;
      }
    }
  }
}

TEST(DecoderFolder, WhatCannotBeTrainedIsRefusedByKeyAndValue) {
  const auto refusal = [](const char* family, const Json& changes) {
    if (!std::filesystem::exists(families + family)) return std::string("no reference");
    Json config = Json::parse(read_file(families + family + "/config.json"));
    for (const auto& [key, value] : changes.items())
      if (value == "absent")
        config.erase(key);
      else
        config[key] = value;
    try {
      hugging_face_shape(config.dump(), "config.json");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  if (refusal("llama3", {}) == "no reference") GTEST_SKIP() << "no references";
  struct Row {
    const char* family;
    Json changes;
    std::string words;  // of the refusal; empty: none
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e4}};
  for (const Row& row :
       {Row{"llama3", {{"attention_dropout", 0.1}}, "attention_dropout = 0.1"},
        {"llama3", {{"hidden_act", "gelu"}}, "hidden_act = \"gelu\""},
        {"llama3", {{"rope_parameters", linear}}, "rope_type = \"linear\""},
        {"llama3", {{"attention_bias", true}}, "attention_bias = true"},
        {"llama3", {{"attention_bias", true}, {"mlp_bias", true}}, ""},
        {"llama3", {{"mlp_bias", true}}, "mlp_bias = true"},
        {"llama3", {{"quantization_config", {{"bits", 4}}}}, "quantization_config = {\"bits\":4}"},
        {"llama3", {{"num_key_value_heads", 3}}, "does not divide model.heads = 4"},
        {"llama3", {{"num_key_value_heads", "absent"}}, ""},
        {"llama3", {{"hidden_size", 64.5}}, "hidden_size = 64.5"},
        {"llama3", {{"intermediate_size", "absent"}}, "no intermediate_size"},
        {"mistral", {{"num_key_value_heads", "absent"}}, "no num_key_value_heads"},
        {"mistral", {{"sliding_window", 32}}, "sliding_window = 32"},
        {"mistral", {{"sliding_window", 96}}, ""},
        {"mistral", {{"sliding_window", "absent"}}, ""},
        {"mistral", {{"sliding_window", "absent"}, {"max_position_embeddings", 32768}}, "means 4096"},
        {"qwen2", {{"sliding_window", 32}}, ""},
        {"qwen2", {{"sliding_window", 32}, {"use_sliding_window", true}}, ""},  // from layer 28 on
        {"qwen2",
         {{"sliding_window", 32}, {"use_sliding_window", true}, {"layer_types", "absent"}, {"max_window_layers", 0}},
         "use_sliding_window = true"},
        {"qwen2",
         {{"sliding_window", 32}, {"use_sliding_window", true}, {"layer_types", "absent"}, {"max_window_layers", 1}},
         "use_sliding_window = true"},
        {"qwen2",
         {{"sliding_window", 32}, {"use_sliding_window", true}, {"layer_types", "absent"}, {"max_window_layers", 2}},
         ""},
        {"qwen2",
         {{"sliding_window", 1 << 20},
          {"use_sliding_window", true},
          {"layer_types", "absent"},
          {"max_window_layers", 0}},
         ""},
        {"llama3", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, "rope_type = \"yarn\""},
        {"llama3", {{"rope_parameters", {{"rope_type", "default"}, {"mscale", 2.0}}}}, "mscale = 2.0"},
        {"llama3", {{"attn_logit_softcapping", 30.0}}, "attn_logit_softcapping = 30.0"},
        {"llama3", {{"query_pre_attn_scalar", nullptr}, {"use_cache", false}}, ""},
        {"neox", {{"rotary_pct", 0.7}, {"rope_parameters", "absent"}}, "an odd number"},
        {"qwen3", {{"attention_bias", true}}, "attention_bias = true"},
        {"qwen3", {{"layer_types", {"sliding_attention", "full_attention"}}}, "layer_types"},
        {"neox", {{"hidden_dropout", 0.1}}, "hidden_dropout = 0.1"},
        {"neox", {{"hidden_act", "relu"}}, "hidden_act = \"relu\""},
        {"neox", {{"hidden_act", "gelu_new"}}, ""},
        {"neox", {{"use_parallel_residual", false}}, ""}}) {
    const std::string said = refusal(row.family, row.changes);
    EXPECT_EQ(said.empty(), row.words.empty()) << row.family << " " << row.changes << ": " << said;
    EXPECT_NE(said.find(row.words), std::string::npos) << row.family << " " << row.changes << ": " << said;
  }
}

}  // namespace
}  // namespace megalith
