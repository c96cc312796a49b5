// The list of parameters: counts of the published models, names shared with the checkpoints, order, identities.
#include "trainer/model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/system/json.h"
#include "tests/checkpoints/gpt2.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {
namespace {

ModelConfig gpt2(int64_t layers, int64_t hidden, int64_t heads) {
  return {.layers = layers, .hidden = hidden, .heads = heads, .vocab = 50257, .context = 1024, .dropout = 0};
}

std::vector<ParamSpec> flat(const std::vector<UnitSpec>& spec) {
  std::vector<ParamSpec> all;
  for (const UnitSpec& unit : spec) all.insert(all.end(), unit.params.begin(), unit.params.end());
  return all;
}

TEST(Spec, CountsOfThePublishedModels) {
  EXPECT_EQ(num_parameters(model_spec(gpt2(12, 768, 12))), 124'439'808);
  EXPECT_EQ(num_parameters(model_spec(gpt2(24, 1024, 16))), 354'823'168);
  EXPECT_EQ(num_parameters(model_spec(gpt2(36, 1280, 20))), 774'030'080);
  EXPECT_EQ(num_parameters(model_spec(gpt2(48, 1600, 25))), 1'557'611'200);
}

// As their cards on the Hugging Face hub count them.
TEST(Spec, CountsOfPublishedModelsOfOtherFamilies) {
  ModelConfig llama = gpt2(32, 4096, 32);
  llama.norm = NormKind::rms;
  llama.activation = Activation::swiglu;
  llama.positions = Positions::rotary;
  llama.bias = llama.qkv_bias = llama.tied_head = false;
  llama.key_value_heads = 8;
  llama.feed_forward = 14336;
  ModelConfig mistral = llama;
  llama.vocab = 128256;
  mistral.vocab = 32000;
  EXPECT_EQ(num_parameters(model_spec(llama)), 8'030'261'248);    // Llama 3 8B
  EXPECT_EQ(num_parameters(model_spec(mistral)), 7'241'732'096);  // Mistral 7B
  ModelConfig qwen2 = llama;
  qwen2.layers = 28;
  qwen2.hidden = 3584;
  qwen2.heads = 28;
  qwen2.key_value_heads = 4;
  qwen2.feed_forward = 18944;
  qwen2.vocab = 152064;
  qwen2.qkv_bias = true;
  EXPECT_EQ(num_parameters(model_spec(qwen2)), 7'615'616'512);  // Qwen 2.5 7B
  ModelConfig qwen3 = llama;
  qwen3.layers = 36;
  qwen3.feed_forward = 12288;
  qwen3.head_size = 128;
  qwen3.vocab = 151936;
  qwen3.query_key_norm = true;
  EXPECT_EQ(num_parameters(model_spec(qwen3)), 8'190'735'360);  // Qwen 3 8B
  ModelConfig neox = gpt2(32, 4096, 32);
  neox.vocab = 50432;
  neox.tied_head = false;
  neox.positions = Positions::rotary;
  EXPECT_EQ(num_parameters(model_spec(neox)), 6'857'302'016);  // Pythia 6.9B
}

TEST(Spec, RecipesHaveTheModelsTheyAreNamedFor) {
  const std::string configs = MEGALITH_SOURCE_DIR "/configs/";
  for (const auto& [recipe, millions] :
       {std::pair{"gpt2_124m", 124}, {"gpt2_350m", 355}, {"gpt2_774m", 774}, {"gpt2_1558m", 1558}}) {
    Config config = load_config(configs + recipe + ".toml");
    config.model.vocab = 50257;
    EXPECT_EQ(std::lround(static_cast<double>(num_parameters(model_spec(config.model))) / 1e6), millions) << recipe;
  }
}

TEST(Spec, NamesShapesAndTransposesAreHuggingFaces) {
  const ModelConfig model{.layers = 3, .hidden = 15, .heads = 3, .vocab = 31, .context = 9, .dropout = 0};
  const std::vector<StoredParameter> ours = stored_parameters(model), theirs = gpt2_parameters(model);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); i++) {
    EXPECT_EQ(ours[i].name, theirs[i].name);
    EXPECT_EQ(ours[i].shape, theirs[i].shape) << ours[i].name;
    EXPECT_EQ(ours[i].transposed, theirs[i].transposed) << ours[i].name;
  }
}

TEST(Spec, IdsAndNamesAreUniqueAndIdsAreThePosition) {
  const std::vector<ParamSpec> all = flat(model_spec(gpt2(12, 768, 12)));
  std::set<std::string> names;
  for (size_t i = 0; i < all.size(); i++) {
    EXPECT_EQ(all[i].id, i);
    names.insert(all[i].name);
  }
  EXPECT_EQ(names.size(), all.size());
}

TEST(Spec, UnitsAreTablesBlocksNorm) {
  const std::vector<UnitSpec> spec = model_spec(gpt2(4, 64, 4));
  ASSERT_EQ(spec.size(), 7u);
  for (size_t u = 0; u < spec.size(); u++) {
    EXPECT_EQ(spec[u].embedding, u <= 1) << "both tables";
    EXPECT_EQ(spec[u].head, u == 0 || u == 6) << "the token table, which is tied, and the final norm";
    EXPECT_EQ(spec[u].is_layer(), 2 <= u && u < 6);
  }
  ASSERT_EQ(spec[0].params.size(), 1u);
  EXPECT_EQ(spec[0].params[0].name, "wte.weight");
  ASSERT_EQ(spec[1].params.size(), 1u);
  EXPECT_EQ(spec[1].params[0].name, "wpe.weight");
  EXPECT_EQ(spec.back().params.size(), 2u);
  EXPECT_EQ(spec.back().params[0].name, "ln_f.weight");
  for (size_t i = 0; i < 4; i++) {
    ASSERT_EQ(spec[i + 2].params.size(), 12u);
    for (const ParamSpec& param : spec[i + 2].params) EXPECT_TRUE(param.name.starts_with(fmt::format("h.{}.", i)));
  }
}

TEST(Spec, InitialValuesDecayAndSplits) {
  for (const ParamSpec& param : flat(model_spec(gpt2(8, 64, 4)))) {
    const bool matrix = param.shape.num_dims() == 2, projection = param.name.ends_with("c_proj.weight");
    EXPECT_EQ(param.decay, matrix) << param.name;
    EXPECT_EQ(param.init_std > 0, matrix) << param.name;
    if (projection) {
      EXPECT_DOUBLE_EQ(param.init_std, 0.02 / 4) << param.name;  // sqrt(2 * 8) = 4
      EXPECT_EQ(param.split, Split::columns) << param.name;
    }
    const bool scale = param.name.find("ln_") != std::string::npos && param.name.ends_with("weight");
    EXPECT_EQ(param.init_value, scale ? 1 : 0) << param.name;
    const bool joint = param.name.find("c_attn") != std::string::npos;
    EXPECT_EQ(param.row_groups, std::vector<RowGroup>(joint ? 3 : 0, {.rows = param.shape[0] / 3, .block = 16}))
        << param.name;
  }
}

// GPT-2 scales the matrices that end a branch by the depth; a Llama is started without, and GPT-NeoX in its own way.
TEST(Spec, MatricesThatEndABranchStartAsTheyAreAsked) {
  for (const auto& [asked, expected] :
       {std::pair{0.0, 0.01 / 4}, {0.02, 0.02}, {2 / (8 * std::sqrt(64.0)), 1.0 / 32}}) {
    ModelConfig model = gpt2(8, 64, 4);
    model.initial_std = 0.01;
    model.initial_output_std = asked;
    int ends = 0;
    for (const ParamSpec& param : flat(model_spec(model))) {
      const bool end = param.name.ends_with("c_proj.weight");
      ends += end;
      if (end) {
        EXPECT_DOUBLE_EQ(param.init_std, expected) << param.name;
      } else if (param.name.ends_with("c_fc.weight") || param.name.ends_with("c_attn.weight")) {
        EXPECT_DOUBLE_EQ(param.init_std, 0.01) << param.name;
      }
    }
    EXPECT_EQ(ends, 16);
  }
}

TEST(Spec, FlopsOfATokenAreSixAWeightAndAttention) {
  const ModelConfig model = gpt2(12, 768, 12);
  const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768, attention = 12.0 * 12 * 768 * 1024;
  EXPECT_DOUBLE_EQ(model_flops_per_token(model, 1024, false), 6 * weights + attention);
  EXPECT_DOUBLE_EQ(model_flops_per_token(model, 1024, true), 6 * weights + attention / 2);
}

// Checkpoints that were written before [model] had choices.
TEST(Spec, AManifestWithoutChoicesIsOfGpt2) {
  ModelConfig model = gpt2(2, 64, 4);
  Manifest manifest{.step = 1, .state = {{"model", describe_model(model)}}, .files = {}};
  nlohmann::json& shape = manifest.state.at("model");
  const nlohmann::json old = {{"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 50257}, {"context", 1024}};
  for (const auto& [key, value] : old.items()) EXPECT_EQ(shape.at(key), value) << key;
  EXPECT_EQ(shape.size(), shape_keys().size());
  EXPECT_EQ(model_of(manifest, "here"), model);
  shape = old;
  EXPECT_EQ(model_of(manifest, "here"), model);
  shape.erase("heads");
  EXPECT_THROW(model_of(manifest, "here"), Error);
}

TEST(Spec, AManifestKeepsEveryChoice) {
  for (const std::string& key : shape_keys()) {
    ModelConfig model = gpt2(2, 64, 4);
    for (const char* value : {"4", "0.25", "true", "false", "rms", "swiglu"}) try {
        set_shape_value(model, key, value, "here");
      } catch (const Error&) {
      }
    const Manifest manifest{.step = 1, .state = {{"model", describe_model(model)}}, .files = {}};
    EXPECT_EQ(model_of(manifest, "here"), model) << key;
  }
  Manifest wrong{.step = 1, .state = {{"model", describe_model(gpt2(2, 64, 4))}}, .files = {}};
  wrong.state["model"]["norm"] = "batch";
  EXPECT_THROW(model_of(wrong, "here"), Error);
}

}  // namespace
}  // namespace megalith
