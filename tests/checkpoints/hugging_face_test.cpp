// Hugging Face GPT-2 in and out, against the reference model and against files made here byte by byte.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoints/store.h"
#include "tests/checkpoints/raw_safetensors.h"

namespace megalith {
namespace {

using namespace test;

#define NEEDS_REFERENCE() \
  if (!fs::exists(tiny)) GTEST_SKIP() << tiny << " is absent"

TEST(HuggingFace, reads_the_reference_in_our_layout) {
  NEEDS_REFERENCE();
  HuggingFaceReader reader = open_gpt2(tiny);
  const ModelConfig model = read_hugging_face_shape(tiny);
  EXPECT_EQ(model, (ModelConfig{.layers = 2, .hidden = 64, .heads = 4, .vocab = 257, .context = 32}));
  const auto raw = parse(read_file(tiny + "/model.safetensors"));
  EXPECT_EQ(gpt2_parameters(model).size(), raw.size());
  std::mt19937 random(1);
  for (const StoredParameter& p : gpt2_parameters(model)) {
    const std::string name = "parameters/" + p.name;
    EXPECT_EQ(reader.shape(name), p.shape);
    const auto* stored = reinterpret_cast<const float*>(raw.at(p.name).bytes.data());
    const TensorShard whole = whole_tensor(name, p.shape);
    const int64_t rows = whole.rows(), cols = whole.cols();
    const auto expected = [&](int64_t row, int64_t col) {
      return p.transposed ? stored[col * rows + row] : stored[row * cols + col];
    };
    for (int round = 0; round < 20; round++) {
      TensorShard shard = whole;
      if (round > 0) {
        shard.columns.begin = static_cast<int64_t>(random()) % cols;
        shard.columns.end = shard.columns.begin + 1 + static_cast<int64_t>(random()) % (cols - shard.columns.begin);
        const int64_t all = rows * shard.columns.size();
        shard.elements.begin = static_cast<int64_t>(random()) % all;
        shard.elements.end = shard.elements.begin + static_cast<int64_t>(random()) % (all - shard.elements.begin + 1);
      }
      std::vector<float> out(static_cast<size_t>(shard.numel()));
      reader.read(shard, out.data());
      const int64_t width = shard.columns.size();
      int64_t wrong = 0;
      for (int64_t i = shard.elements.begin; i < shard.elements.end; i++)
        wrong +=
            out[static_cast<size_t>(i - shard.elements.begin)] != expected(i / width, shard.columns.begin + i % width);
      ASSERT_EQ(wrong, 0) << describe(shard);
    }
  }
}

TEST(HuggingFace, through_a_checkpoint_and_out_again) {
  NEEDS_REFERENCE();
  const TemporaryFolder folder;
  HuggingFaceReader source = open_gpt2(tiny);
  const ModelConfig model = read_hugging_face_shape(tiny);
  const std::string unfinished = CheckpointStore(folder.path()).begin(1);
  std::vector<std::vector<float>> data;
  std::vector<ShardToWrite> stored;
  for (const StoredParameter& p : gpt2_parameters(model)) {
    const TensorShard whole = whole_tensor("parameters/" + p.name, p.shape);
    data.emplace_back(static_cast<size_t>(whole.numel()));
    source.read(whole, data.back().data());
    stored.push_back({whole, data.back().data()});
  }
  const FileRecord record = RankFileWriter().write(unfinished, 0, stored);
  CheckpointReader checkpoint(
      CheckpointStore(folder.path()).publish(unfinished, {1, nlohmann::json::object(), {record}}));
  const std::string out = folder / "exported/model";
  export_hugging_face(checkpoint, model, gpt2_parameters(model), out);
  EXPECT_EQ(read_hugging_face_shape(out), model);
  const auto before = parse(read_file(tiny + "/model.safetensors")),
             after = parse(read_file(out + "/model.safetensors"));
  EXPECT_EQ(after.size(), before.size());
  for (const auto& [name, t] : before) {
    ASSERT_TRUE(after.contains("transformer." + name)) << name;
    const Raw& other = after.at("transformer." + name);
    EXPECT_EQ(other.shape, t.shape) << name;
    EXPECT_TRUE(other.bytes == t.bytes) << name;
  }
  open_gpt2(out);
  EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 3);
}

TEST(HuggingFace, names_with_a_prefix_masks_and_a_tied_head) {
  auto tensors = small_tensors("transformer.");
  const Raw table = tensors[0].second;
  tensors.push_back({"transformer.h.0.attn.bias", {"U8", {1, 1, 5, 5}, std::string(25, '\1')}});
  tensors.push_back({"transformer.h.0.attn.masked_bias", {"F32", {}, std::string(4, '\0')}});
  tensors.push_back({"lm_head.weight", table});
  HuggingFaceReader reader = open_gpt2(Model(tensors, config_of(small)).path());
  float out = -1;
  reader.read(flat_shard("parameters/wte.weight", {7, 4}, {5, 6}), &out);
  EXPECT_EQ(out, 5.0f);
  EXPECT_THROW(reader.shape("parameters/h.0.attn.bias"), Error);

  const size_t row_bytes = table.bytes.size() / 7;
  for (size_t row = 0; row < 7; row++) {
    tensors.back().second = table;
    tensors.back().second.bytes[row * row_bytes + row_bytes - 1]++;
    expect_part(Model(tensors, config_of(small)).open_error(), fmt::format("row {} of lm_head.weight", row).c_str());
  }
}

TEST(HuggingFace, a_file_of_another_model_is_refused) {
  auto tensors = small_tensors();
  tensors.pop_back();
  expect_part(Model(tensors, config_of(small)).open_error(), "ln_f.bias");
  tensors = small_tensors();
  tensors.push_back({"h.0.adapter.weight", {"F32", {1}, std::string(4, '\0')}});
  expect_part(Model(tensors, config_of(small)).open_error(), "h.0.adapter.weight");
  tensors = small_tensors();
  tensors.push_back({"transformer.wte.weight", tensors[0].second});
  expect_part(Model(tensors, config_of(small)).open_error(), "with and without");
  ModelConfig other = small;
  other.context = 6;
  expect_part(Model(small_tensors(), config_of(other)).open_error(), "(5, 4)");
  tensors = small_tensors();
  tensors[2].second = {"I32", {4}, tensors[2].second.bytes};
  expect_part(Model(tensors, config_of(small)).open_error(), "I32");
}

TEST(HuggingFace, other_architectures_are_refused_with_the_value) {
  const std::vector<std::pair<std::string, Json>> settings = {{"activation_function", "relu"},
                                                              {"layer_norm_epsilon", 1e-6},
                                                              {"tie_word_embeddings", false},
                                                              {"n_inner", 17},
                                                              {"scale_attn_weights", false},
                                                              {"model_type", "gpt_neo"},
                                                              {"add_cross_attention", true},
                                                              {"scale_attn_by_inverse_layer_idx", true},
                                                              {"n_layer", 0},
                                                              {"n_head", 3},
                                                              {"vocab_size", "many"}};
  for (const auto& [key, value] : settings) {
    Json config = config_of(small);
    config[key] = value;
    const std::string message = Model({}, config).open_error();
    expect_part(message, key);
    expect_part(message, value.dump());
  }
  for (const char* key : {"n_layer", "n_embd", "n_head", "vocab_size", "n_positions"}) {
    Json config = config_of(small);
    config.erase(key);
    expect_part(Model({}, config).open_error(), key);
  }
  Json same = config_of(small);
  same.update({{"activation_function", "gelu_pytorch_tanh"}, {"layer_norm_epsilon", 1e-5}, {"n_inner", nullptr}});
  open_gpt2(Model(small_tensors(), same).path());
  const TemporaryFolder empty;
  expect_part(message_of([&] { open_gpt2(empty.path()); }), "config.json");
}

TEST(HuggingFace, a_folder_of_another_family_is_refused_by_its_name) {
  expect_part(Model({}, {{"model_type", "gemma2"}, {"hidden_size", 64}}).open_error(), "model_type = \"gemma2\"");
  expect_part(Model({}, {{"architectures", {"LlamaForCausalLM"}}}).open_error(),
              "architectures = [\"LlamaForCausalLM\"]");
  expect_part(Model({}, {{"architectures", {"GPT2LMHeadModel"}}}).open_error(), "has no n_layer");
}

// What is in which file is known by the index.
TEST(HuggingFace, several_files_are_read_by_their_index) {
  const auto tensors = small_tensors("transformer.");
  const size_t half = tensors.size() / 2;
  const std::vector<std::pair<std::string, Raw>> first(tensors.begin(), tensors.begin() + static_cast<ptrdiff_t>(half)),
      second(tensors.begin() + static_cast<ptrdiff_t>(half), tensors.end());
  Json map = Json::object();
  for (size_t i = 0; i < tensors.size(); i++) map[tensors[i].first] = i < half ? "a.safetensors" : "b.safetensors";
  const TemporaryFolder folder;
  spill(folder / "config.json", config_of(small).dump());
  spill(folder / "a.safetensors", safetensors(first));
  spill(folder / "b.safetensors", safetensors(second));
  const auto open_error = [&] { return message_of([&] { open_gpt2(folder.path()); }); };
  expect_part(open_error(), "it has a.safetensors, b.safetensors");
  const auto list = [&](const Json& weights) {
    spill(folder / "model.safetensors.index.json",
          Json{{"metadata", {{"total_size", 1}}}, {"weight_map", weights}}.dump());
  };
  list(map);
  HuggingFaceReader reader = open_gpt2(folder.path()), whole = open_gpt2(Model(tensors, config_of(small)).path());
  for (const StoredParameter& p : gpt2_parameters(small)) {
    const TensorShard shard = whole_tensor("parameters/" + p.name, p.shape);
    std::vector<float> found(static_cast<size_t>(shard.numel())), want(found.size());
    reader.read(shard, found.data());
    whole.read(shard, want.data());
    EXPECT_EQ(found, want) << p.name;
  }
  const auto after = [&](const char* name, const Json& value) {
    Json changed = map;
    value.is_null() ? void(changed.erase(name)) : void(changed[name] = value);
    list(changed);
    return open_error();
  };
  const char* const table = "transformer.wte.weight";
  expect_part(after(table, "b.safetensors"), "lists transformer.wte.weight in b.safetensors");
  expect_part(after(table, nullptr), "a.safetensors has transformer.wte.weight, which");
  expect_part(after("x", "a.safetensors"), "it is in none of them");
  expect_part(after("x", "../a.safetensors"), "not a file of its folder");
  expect_part(after("x", 3), "the file of x is 3");
  list(Json::object());
  expect_part(open_error(), "lists no tensors");
  spill(folder / "model.safetensors.index.json", "{}");
  expect_part(open_error(), "no weight_map");
  list(map);
  spill(folder / "b.safetensors", safetensors(tensors));
  expect_part(open_error(), "is in");
  fs::remove(folder / "b.safetensors");
  expect_part(open_error(),
              "of the 2 files that model.safetensors.index.json lists, 1 is missing: b.safetensors (8 tensors)");
}

TEST(HuggingFace, weights_of_other_formats_are_refused_by_name) {
  const TemporaryFolder folder;
  spill(folder / "config.json", config_of(small).dump());
  expect_part(message_of([&] { open_gpt2(folder.path()); }), "safe_serialization");
  for (const char* name :
       {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "tf_model.h5", "flax_model.msgpack"}) {
    spill(folder / name, "x");
    expect_part(message_of([&] { open_gpt2(folder.path()); }), name);
  }
  const TemporaryFolder other;
  EXPECT_FALSE(is_hugging_face_folder(other.path()));
  spill(other / "train.bin", "x");
  EXPECT_FALSE(is_hugging_face_folder(other.path()));
  spill(other / "pytorch_model.bin", "x");
  EXPECT_TRUE(is_hugging_face_folder(other.path()));
}

TEST(HuggingFace, the_shards_that_were_refused_are_read) {
  const std::string shards = MEGALITH_SOURCE_DIR "/../shared/cases/sharded-hf";
  if (!fs::exists(shards)) GTEST_SKIP() << shards << " is absent";
  HuggingFaceReader reader = open_gpt2(shards);
  EXPECT_EQ(reader.shape("parameters/wte.weight"), (std::vector<int64_t>{257, 32}));
  const TemporaryFolder copy;
  for (const auto& entry : fs::directory_iterator(shards))
    if (entry.path().filename() != "model-00003-of-00008.safetensors")
      fs::copy_file(entry.path(), copy.path() + "/" + entry.path().filename().string());
  expect_part(message_of([&] { open_gpt2(copy.path()); }), "model-00003-of-00008.safetensors");
}

}  // namespace
}  // namespace megalith
