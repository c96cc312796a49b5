// Every recipe in configs/ loads, validates and reads back from its own print, and is the model it is named for.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "configs/config.h"
#include "configs/shrink.h"

namespace megalith {
namespace {

const std::string folder = MEGALITH_SOURCE_DIR "/configs/";

// Tied token table, positions, two layer norms a block, biases everywhere, a last norm: GPT-2.
int64_t parameters(const ModelConfig& model, int64_t vocab) {
  const int64_t h = model.hidden;
  return (vocab + model.context) * h + model.layers * (12 * h * h + 13 * h) + 2 * h;
}

// RMS norms, grouped heads of keys and values, SwiGLU, no biases but those of q, k and v: Llama and Qwen2.
int64_t parameters_of_llama(const ModelConfig& model) {
  const int64_t h = model.hidden, kv = h / model.heads * model.kv_heads();
  const int64_t layer = 2 * h * h + 2 * h * kv + (model.qkv_bias ? h + 2 * kv : 0) + 3 * h * model.feed_forward + 2 * h;
  return (model.tied_head ? 1 : 2) * model.vocab * h + model.layers * layer + h;
}

TEST(Recipes, AllLoadAndRoundTrip) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml") continue;
    names.insert(entry.path().stem());
    const Config config = load_config(entry.path());
    EXPECT_NO_THROW(validate(config));
    EXPECT_EQ(parse_config(to_toml(config), "printed"), config) << entry.path();
    EXPECT_EQ(config.run.output, "runs/" + entry.path().stem().string());
    EXPECT_FALSE(config.data.train.empty());
    EXPECT_FALSE(config.data.validation.empty());
    EXPECT_NO_THROW(load_config(entry.path(), {"train.steps=2"})) << "a recipe can be cut short";
  }
  EXPECT_EQ(names, (std::set<std::string>{"quickstart",
                                          "finetune",
                                          "lora",
                                          "gpt2_124m",
                                          "gpt2_350m",
                                          "gpt2_774m",
                                          "gpt2_1558m",
                                          "10b_p4d",
                                          "10b_p4d_fastest",
                                          "10b_p4d_sharded_512",
                                          "30b_p4d",
                                          "30b_p4d_fastest",
                                          "30b_p4d_sharded_2048",
                                          "30b_p4d_sharded_512",
                                          "60b_p4d",
                                          "60b_p4d_fastest",
                                          "10b_h100",
                                          "30b_h100",
                                          "60b_h100",
                                          "10b_h200",
                                          "30b_h200",
                                          "60b_h200",
                                          "gpt2_774m_24gib",
                                          "llama3_8b_h100",
                                          "llama3_8b_h100_fp8",
                                          "llama3_70b_h100",
                                          "llama3_70b_h100_fp8",
                                          "llama32_1b_24gib",
                                          "qwen25_7b_h100"}));
}

// tests/end_to_end/recipes_test.cpp trains them so.
TEST(Recipes, OfClustersShrinkToEightRanks) {
  int of_clusters = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml") continue;
    Config config = load_config(entry.path());
    if (config.hardware.profile.empty() || config.hardware.profile == "rtx_4090") continue;
    of_clusters++;
    EXPECT_NO_THROW(validate(shrink(config, 8))) << entry.path();
  }
  EXPECT_GE(of_clusters, 14);
}

TEST(Recipes, ParameterCounts) {
  const auto count = [](const char* name, int64_t vocab) {
    return parameters(load_config(folder + name).model, vocab);
  };
  EXPECT_EQ(count("gpt2_124m.toml", 50257), 124439808);
  EXPECT_EQ(count("gpt2_350m.toml", 50257), 354823168);
  EXPECT_EQ(count("gpt2_774m.toml", 50257), 774030080);
  EXPECT_EQ(count("gpt2_1558m.toml", 50257), 1557611200);
  EXPECT_EQ(count("10b_p4d.toml", 50257), 10276950016);
  EXPECT_EQ(count("10b_p4d_sharded_512.toml", 50257), 10276950016);
  EXPECT_EQ(count("30b_p4d.toml", 50257), 29963408384);
  EXPECT_EQ(count("60b_p4d.toml", 50257), 60016467968);
}

// The counts of models to continue are those of the published weights.
TEST(Recipes, ParameterCountsOfLlamas) {
  const auto model = [](const std::string& name) { return load_config(folder + name + ".toml").model; };
  ModelConfig quickstart = model("quickstart");
  quickstart.vocab = 4096;
  EXPECT_EQ(parameters_of_llama(quickstart), 2557632);
  EXPECT_EQ(parameters_of_llama(model("llama3_8b_h100")), 8030261248);
  EXPECT_EQ(parameters_of_llama(model("llama3_70b_h100")), 70553706496);
  EXPECT_EQ(parameters_of_llama(model("llama3_8b_h100_fp8")), 8030261248);
  EXPECT_EQ(parameters_of_llama(model("llama3_70b_h100_fp8")), 70553706496);
  EXPECT_EQ(parameters_of_llama(model("llama32_1b_24gib")), 1235814400);
  EXPECT_EQ(parameters_of_llama(model("qwen25_7b_h100")), 7615616512);
  for (const char* name : {"llama3_8b_h100", "llama3_70b_h100", "llama32_1b_24gib", "qwen25_7b_h100"}) {
    const ModelConfig here = model(name);
    EXPECT_EQ(here.norm, NormKind::rms) << name;
    EXPECT_EQ(here.activation, Activation::swiglu) << name;
    EXPECT_EQ(here.positions, Positions::rotary) << name;
    EXPECT_FALSE(here.bias) << name;
  }
}

TEST(Recipes, Gpt2Shape) {
  for (const char* name : {"gpt2_124m.toml", "gpt2_350m.toml", "gpt2_774m.toml", "gpt2_1558m.toml"}) {
    const Config config = load_config(folder + name);
    EXPECT_EQ(config.model.vocab, 50257) << name;
    EXPECT_EQ(config.model.context, 1024) << name;
    EXPECT_EQ(config.model.hidden / config.model.heads, 64) << name;
    EXPECT_EQ(config.precision.compute, ComputeType::bf16) << name;
    const int64_t tokens = config.batch.global_batch_size * config.batch.sequence_length;
    EXPECT_TRUE(tokens == 524288 || tokens == 1048576) << name << " " << tokens;
    EXPECT_EQ(config.batch.global_batch_size % (8 * config.batch.microbatch_size), 0) << "the 8 GPUs it is written for";
  }
}

}  // namespace
}  // namespace megalith
