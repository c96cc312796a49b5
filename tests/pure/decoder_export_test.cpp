// Models in Hugging Face folders of other families than GPT-2: load, save, load is the same, whichever family has the
// choices; and what no family can say is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "checkpoints/hugging_face.h"
#include "checkpoints/safetensors_folder.h"
#include "kernels/system/files.h"
#include "tests/checkpoints/raw_safetensors.h"
#include "tests/data/scratch.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {
namespace {

using Json = nlohmann::json;

const std::string references_of_families = MEGALITH_SOURCE_DIR "/../shared/reference/families/";

std::vector<float> tensor_values(const SafeTensorsFolder& folder, const std::string& name) {
  std::vector<float> all(static_cast<size_t>(folder.entry(name).numel));
  folder.read(name, 0, 1, folder.entry(name).numel, all.data());
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class DecoderExport : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, DecoderExport, testing::Values("llama3", "llama2", "mistral", "qwen2", "qwen3", "neox"),
                         [](const auto& suite) { return std::string(suite.param); });

// Their names, shapes and values, and the keys of config.json in both versions.
TEST_P(DecoderExport, IsTheFolderThatWasRead) {
  const std::string folder = references_of_families + GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference at " << folder;
  const test::Scratch scratch;
  const std::string out = scratch.path("out");
  WeightSource weights = open_weights(folder);
  constexpr int64_t most = 30'000;
  export_hugging_face(*weights.tensors, weights.model, stored_parameters(weights.model), out, {},
                      {.most_bytes = most, .generation = {.ends = {257}, .begin = 256}});
  const SafeTensorsFolder before(folder), after(out);
  ASSERT_EQ(before.files().size(), after.files().size());
  for (const auto& [name, file] : before.files()) {
    ASSERT_TRUE(after.files().contains(name)) << name;
    EXPECT_EQ(before.entry(name).shape, after.entry(name).shape) << name;
    EXPECT_EQ(after.entry(name).dtype, "F32");
    EXPECT_TRUE(same_bits(tensor_values(before, name), tensor_values(after, name))) << name;
  }
  std::set<const SafeTensors*> files;
  for (const auto& [name, file] : after.files()) files.insert(file);
  EXPECT_GT(files.size(), 2u);
  for (const SafeTensors* file : files) {
    int64_t bytes = 0;
    for (const auto& [name, entry] : file->entries()) bytes += entry.end - entry.begin;
    EXPECT_TRUE(bytes <= most || file->entries().size() == 1) << file->path() << " " << bytes;
  }

  // A model of Mistral's without a window is Llama's.
  const bool is_mistral = std::string(GetParam()) == "mistral";
  const Json found = Json::parse(read_file(out + "/config.json"));
  const std::set<std::string> of_training_and_files{
      "dtype",         "torch_dtype", "transformers_version", "initializer_range", "classifier_dropout",
      "pad_token_id",  "use_cache",   "pretraining_tp",       "is_decoder",        "layer_types",
      "architectures", "model_type",  "max_window_layers",    "sliding_window",    "use_mrope"};
  for (const char* form : {"/config.json", "/config.v4.json"}) {
    const Json expected = Json::parse(read_file(folder + form));
    for (const auto& [key, value] : expected.items())
      if (!of_training_and_files.contains(key)) {
        ASSERT_TRUE(found.contains(key)) << form << ": " << key;
        EXPECT_EQ(found.at(key), value) << form << ": " << key;
      }
    for (const char* key : {"model_type", "architectures"})
      EXPECT_TRUE(is_mistral || found.at(key) == expected.at(key)) << key;
  }
  EXPECT_TRUE(found.value("sliding_window", Json()).is_null());
  EXPECT_TRUE(!is_mistral || found.at("model_type") == "llama");
  const Json generation = Json::parse(read_file(out + "/generation_config.json"));
  EXPECT_EQ(generation.at("bos_token_id"), 256);
  EXPECT_EQ(generation.at("eos_token_id"), 257);
  for (const std::string& key : shape_keys())
    EXPECT_EQ(shape_value(open_weights(out).model, key), shape_value(open_weights(folder).model, key)) << key;

  // The keys of either version alone are of the same model.
  for (const std::vector<const char*>& left_out :
       {std::vector{"rope_parameters"}, {"rope_theta", "rotary_emb_base", "rotary_pct", "rope_scaling"}}) {
    Json one = found;
    for (const char* key : left_out) one.erase(key);
    EXPECT_EQ(hugging_face_shape(one.dump(), "config.json"), open_weights(out).model) << one;
  }
}

// Counts, so that each element of each parameter is another number, in a model of any choices.
class CountingSource : public TensorSource {
 public:
  explicit CountingSource(const ModelConfig& model) : parameters_(stored_parameters(model)) {}
  std::vector<int64_t> shape(const std::string& name) const override {
    for (const StoredParameter& p : parameters_)
      if (std::string(parameters_path) + p.name == name) return p.shape;
    ADD_FAILURE() << name;
    return {};
  }
  void read(const TensorShard& wanted, float* out) override {
    int64_t first = 1;
    for (const StoredParameter& p : parameters_) {
      if (std::string(parameters_path) + p.name == wanted.name) break;
      first += std::accumulate(p.shape.begin(), p.shape.end(), int64_t{1}, std::multiplies<>());
    }
    std::iota(out, out + wanted.numel(), static_cast<float>(first + wanted.elements.begin));
  }

 private:
  std::vector<StoredParameter> parameters_;
};

ModelConfig modern_model() {
  ModelConfig m{.layers = 2, .hidden = 16, .heads = 4, .vocab = 11, .context = 9};
  m.norm = NormKind::rms;
  m.bias = m.qkv_bias = false;
  m.activation = Activation::swiglu;
  m.positions = Positions::rotary;
  m.key_value_heads = 2;
  m.head_size = 6;
  m.feed_forward = 20;
  return m;
}
ModelConfig neox_model() {
  ModelConfig m{.layers = 2, .hidden = 12, .heads = 3, .vocab = 11, .context = 9};
  m.positions = Positions::rotary;
  m.rotary_share = 0.5;
  m.tied_head = false;
  return m;
}

struct FamilyRow {
  std::string name;
  ModelConfig model;
  std::string family;
};
template <class Change>
ModelConfig with_change(ModelConfig model, Change change) {
  change(model);
  return model;
}

TEST(DecoderExport, AModelFromScratchIsOfTheFamilyThatHasItsChoices) {
  using M = ModelConfig&;
  for (const FamilyRow& row :
       {FamilyRow{
            "sizes", {.layers = 1, .hidden = 12, .heads = 3, .vocab = 11, .context = 9, .feed_forward = 48}, "gpt2"},
        {"modern", modern_model(), "llama"},
        {"untied", with_change(modern_model(), [](M m) { m.tied_head = false; }), "llama"},
        {"biases", with_change(modern_model(), [](M m) { m.bias = m.qkv_bias = true; }), "llama"},
        {"scaled",
         with_change(modern_model(),
                     [](M m) {
                       m.rotary_factor = 3.5;
                       m.rotary_low = 0.7;
                       m.rotary_high = 3;
                       m.rotary_context = 5;
                     }),
         "llama"},
        {"unused", with_change(modern_model(), [](M m) { m.rotary_context = 5; }), "llama"},
        {"one width of heads",
         with_change(modern_model(), [](M m) { m.head_size = m.key_value_heads = m.feed_forward = 0; }), "llama"},
        {"qkv", with_change(modern_model(), [](M m) { m.qkv_bias = true; }), "qwen2"},
        {"qkv of hidden / heads",
         with_change(modern_model(),
                     [](M m) {
                       m.qkv_bias = true;
                       m.hidden = 24;
                     }),
         "qwen2"},
        {"norms", with_change(modern_model(), [](M m) { m.query_key_norm = true; }), "qwen3"},
        {"neox", neox_model(), "gpt_neox"},
        {"parallel",
         with_change(neox_model(),
                     [](M m) {
                       m.parallel_residual = m.tied_head = true;
                       m.activation = Activation::gelu_erf;
                       m.norm_epsilon = 1e-6;
                     }),
         "gpt_neox"}}) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(exported_family(row.model), row.family);
    const test::Scratch scratch;
    const std::string out = scratch.path("out");
    CountingSource source(row.model);
    export_hugging_face(source, row.model, stored_parameters(row.model), out);
    EXPECT_EQ(Json::parse(read_file(out + "/config.json")).at("model_type"), row.family);
    const WeightSource again = open_weights(out);
    EXPECT_EQ(exported_family(again.model), row.family);
    for (const StoredParameter& p : stored_parameters(row.model)) {
      const TensorShard whole = whole_tensor(std::string(parameters_path) + p.name, p.shape);
      std::vector<float> expected(static_cast<size_t>(whole.numel())), found(expected.size());
      source.read(whole, expected.data());
      again.tensors->read(whole, found.data());
      EXPECT_EQ(found, expected) << p.name;
    }
    EXPECT_EQ(again.model.features(), row.model.features());
    EXPECT_EQ(again.model.kv_heads(), row.model.kv_heads());
    EXPECT_EQ(again.model.size_of_head(), row.model.size_of_head());
    EXPECT_EQ(again.model.norm_epsilon, row.model.norm_epsilon);
    EXPECT_EQ(again.model.rotary_factor, row.model.rotary_factor);
  }
}

// A head beside a tied table is the table, in every row.
TEST(DecoderExport, ATiedHeadIsTheTableInEveryRow) {
  const test::Scratch scratch;
  const ModelConfig model = modern_model();
  CountingSource source(model);
  const std::string out = scratch.path("out"), path = out + "/model.safetensors";
  export_hugging_face(source, model, stored_parameters(model), out);
  const std::map<std::string, test::Raw> whole = test::parse(read_file(path));
  const auto opened = [&](const test::Raw& head) {
    std::vector<std::pair<std::string, test::Raw>> all(whole.begin(), whole.end());
    all.emplace_back("lm_head.weight", head);
    std::filesystem::remove(path);
    write_file(path, test::safetensors(all));
    try {
      open_weights(out);
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const test::Raw table = whole.at("model.embed_tokens.weight");
  EXPECT_EQ(opened(table), "");
  const auto rows = static_cast<size_t>(model.vocab), row_bytes = table.bytes.size() / rows;
  for (size_t row = 0; row < rows; row++) {
    test::Raw head = table;
    head.bytes[row * row_bytes + row_bytes - 1]++;
    EXPECT_NE(opened(head).find(fmt::format("row {} of lm_head.weight differs", row)), std::string::npos)
        << row << ": " << opened(head);
  }
}

TEST(DecoderExport, WhatNoFamilySaysIsRefusedByKeyAndValue) {
  using M = ModelConfig&;
  const ModelConfig gpt2{.layers = 1, .hidden = 12, .heads = 3, .vocab = 11, .context = 9};
  for (const auto& [model, words] :
       {std::pair{with_change(gpt2, [](M m) { m.tied_head = false; }), "model.tied_head = false"},
        {with_change(gpt2, [](M m) { m.norm = NormKind::rms; }), "model.norm = \"rms\""},
        {with_change(modern_model(), [](M m) { m.bias = true; }), "model.qkv_bias = false"},
        {with_change(modern_model(), [](M m) { m.rotary_share = 0.5; }), "model.rotary_share = 0.5"},
        {with_change(modern_model(), [](M m) { m.parallel_residual = true; }), "model.parallel_residual = true"},
        {with_change(modern_model(), [](M m) { m.query_key_norm = m.qkv_bias = true; }),
         "model.query_key_norm = true: `transformers` has no model"},
        {with_change(neox_model(), [](M m) { m.head_size = 8; }), "model.head_size = 8"},
        {with_change(neox_model(), [](M m) { m.key_value_heads = 1; }), "model.key_value_heads = 1"},
        {with_change(neox_model(), [](M m) { m.bias = false; }), "model.bias = false"}}) {
    const test::Scratch scratch;
    const std::string out = scratch.path("out");
    CountingSource source(model);
    try {
      export_hugging_face(source, model, stored_parameters(model), out);
      ADD_FAILURE() << "not refused: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace
}  // namespace megalith
