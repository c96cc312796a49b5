// Hugging Face GPT-2 in and out, against the reference model and against files made here byte by byte.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/checkpoints/gpt2.h"
#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

#define NEEDS_REFERENCE() \
  if (!fs::exists(tiny)) GTEST_SKIP() << tiny << " is absent"

struct Raw {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string safetensors(const std::vector<std::pair<std::string, Raw>>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  return with_header(header.dump(), data);
}

// A second, plain reader of the format.
std::map<std::string, Raw> parse(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::map<std::string, Raw> tensors;
  const Json header = Json::parse(file.substr(8, length));
  for (const auto& [name, t] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = t["data_offsets"][0], end = t["data_offsets"][1];
    tensors[name] = {t["dtype"], t["shape"], file.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

const ModelConfig small{.layers = 1, .hidden = 4, .heads = 2, .vocab = 7, .context = 5};

Json config_of(const ModelConfig& m) {
  return {{"model_type", "gpt2"}, {"n_layer", m.layers},   {"n_embd", m.hidden},
          {"n_head", m.heads},    {"vocab_size", m.vocab}, {"n_positions", m.context}};
}

std::vector<std::pair<std::string, Raw>> small_tensors(const std::string& prefix = "") {
  std::vector<std::pair<std::string, Raw>> tensors;
  float value = 0;
  for (StoredParameter p : gpt2_parameters(small)) {
    if (p.transposed) std::swap(p.shape[0], p.shape[1]);
    std::string bytes;
    for (int64_t i = whole_piece("t", p.shape).numel(); i > 0; i--, value++)
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    tensors.push_back({prefix + p.name, {"F32", p.shape, bytes}});
  }
  return tensors;
}

// A folder holding one model.
class Model {
 public:
  Model(const std::vector<std::pair<std::string, Raw>>& tensors, const Json& config) {
    spill(folder_ / "model.safetensors", safetensors(tensors));
    spill(folder_ / "config.json", config.dump());
  }
  const std::string& path() const { return folder_.path(); }
  std::string open_error() const {
    return message_of([&] { open_gpt2(path()); });
  }

 private:
  TemporaryFolder folder_;
};

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

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
    const Piece whole = whole_piece(name, p.shape);
    const int64_t rows = whole.rows(), cols = whole.cols();
    const auto expected = [&](int64_t row, int64_t col) {
      return p.transposed ? stored[col * rows + row] : stored[row * cols + col];
    };
    for (int round = 0; round < 20; round++) {
      Piece piece = whole;
      if (round > 0) {
        piece.col_begin = static_cast<int64_t>(random()) % cols;
        piece.col_end = piece.col_begin + 1 + static_cast<int64_t>(random()) % (cols - piece.col_begin);
        const int64_t all = rows * (piece.col_end - piece.col_begin);
        piece.begin = static_cast<int64_t>(random()) % all;
        piece.end = piece.begin + static_cast<int64_t>(random()) % (all - piece.begin + 1);
      }
      std::vector<float> out(static_cast<size_t>(piece.numel()));
      reader.read(piece, out.data());
      const int64_t width = piece.col_end - piece.col_begin;
      int64_t wrong = 0;
      for (int64_t i = piece.begin; i < piece.end; i++)
        wrong += out[static_cast<size_t>(i - piece.begin)] != expected(i / width, piece.col_begin + i % width);
      ASSERT_EQ(wrong, 0) << describe(piece);
    }
  }
}

TEST(HuggingFace, through_a_checkpoint_and_out_again) {
  NEEDS_REFERENCE();
  const TemporaryFolder folder;
  HuggingFaceReader source = open_gpt2(tiny);
  const ModelConfig model = read_hugging_face_shape(tiny);
  const std::string unfinished = begin_checkpoint(folder.path(), 1);
  std::vector<std::vector<float>> data;
  std::vector<StoredPiece> stored;
  for (const StoredParameter& p : gpt2_parameters(model)) {
    const Piece whole = whole_piece("parameters/" + p.name, p.shape);
    data.emplace_back(static_cast<size_t>(whole.numel()));
    source.read(whole, data.back().data());
    stored.push_back({whole, data.back().data()});
  }
  const FileRecord record = RankFileWriter().write(unfinished, 0, stored);
  CheckpointReader checkpoint(publish_checkpoint(unfinished, {1, nlohmann::json::object(), {record}}));
  const std::string out = folder / "exported/model";
  export_hugging_face(checkpoint, model, gpt2_parameters(model), std::nullopt, out);
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

TEST(HuggingFace, an_export_overwrites_nothing) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  for (const std::string name : {"config.json", "generation_config.json", "model.safetensors"}) {
    const TemporaryFolder folder;
    spill(folder / name, "precious");
    expect_part(
        message_of([&] { export_hugging_face(source, small, gpt2_parameters(small), std::nullopt, folder.path()); }),
        folder / name);
    EXPECT_EQ(read_file(folder / name), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  }
  const TemporaryFolder folder;
  ModelConfig other = small;
  other.vocab = 8;
  expect_part(
      message_of([&] { export_hugging_face(source, other, gpt2_parameters(other), std::nullopt, folder / "x"); }),
      "wte.weight");
  EXPECT_FALSE(fs::exists(folder / "x"));
}

// Files of at most so many bytes, or of one tensor, which the index names; each value as bf16 has it.
TEST(HuggingFace, an_export_in_several_files_and_in_bf16) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  constexpr int64_t most = 100;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string out = folder / name_of(type);
    export_hugging_face(source, small, gpt2_parameters(small), std::nullopt, out, {},
                        {.type = type, .most_bytes = most});
    EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
    const auto index = nlohmann::json::parse(read_file(out + "/model.safetensors.index.json"));
    EXPECT_EQ(index.at("metadata").at("total_size"), export_bytes(gpt2_parameters(small), type));
    EXPECT_EQ(nlohmann::json::parse(read_file(out + "/config.json")).at("torch_dtype"),
              type == DType::f32 ? "float32" : "bfloat16");
    std::map<std::string, std::map<std::string, Raw>> files;
    int64_t bytes = 0;
    for (const auto& [name, file] : index.at("weight_map").items()) {
      const auto of = file.get<std::string>();
      if (!files.contains(of)) files[of] = parse(read_file(out + "/" + of));
      EXPECT_TRUE(files[of].contains(name)) << name << " in " << of;
    }
    for (const auto& [name, tensors] : files) {
      EXPECT_TRUE(name.ends_with(fmt::format("-of-{:05}.safetensors", files.size()))) << name;
      int64_t of_file = 0;
      for (const auto& [tensor, raw] : tensors) of_file += static_cast<int64_t>(raw.bytes.size());
      EXPECT_TRUE(of_file <= most || tensors.size() == 1) << name << " holds " << of_file;
      bytes += of_file;
    }
    EXPECT_EQ(bytes, export_bytes(gpt2_parameters(small), type)) << "each tensor once";
    EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator(out), {})), files.size() + 3);
    for (const StoredParameter& p : gpt2_parameters(small)) {
      if (p.transposed) continue;
      std::vector<float> values(
          files[index.at("weight_map").at("transformer." + p.name)]["transformer." + p.name].bytes.size() /
          static_cast<size_t>(size_of(type)));
      source.read(whole_piece("parameters/" + p.name, p.shape), values.data());
      const SafeTensors file(out + "/" + index.at("weight_map").at("transformer." + p.name).get<std::string>());
      std::vector<float> found(values.size());
      file.read("transformer." + p.name, 0, 1, static_cast<int64_t>(found.size()), found.data());
      if (type == DType::bf16)
        for (float& value : values) value = static_cast<float>(bfloat16(value));
      EXPECT_EQ(found, values) << p.name;
    }
  }
  fs::create_directory(folder / "taken");
  spill(folder / "taken/model.safetensors.index.json", "precious");
  expect_part(
      message_of([&] { export_hugging_face(source, small, gpt2_parameters(small), std::nullopt, folder / "taken"); }),
      "model.safetensors.index.json exists already");
}

TEST(HuggingFace, an_export_leaves_out_the_padding_of_the_table) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  ModelConfig cut = small;
  cut.vocab = 5;
  export_hugging_face(source, cut, gpt2_parameters(cut), 4, folder / "cut", {}, {.cuts_table = true});
  EXPECT_EQ(read_hugging_face_shape(folder / "cut").vocab, 5);
  const auto before = parse(read_file(model.path() + "/model.safetensors")),
             after = parse(read_file(folder / "cut/model.safetensors"));
  for (const auto& [name, t] : before) {
    const Raw& other = after.at("transformer." + name);
    if (name == "wte.weight")
      EXPECT_EQ(other.bytes, t.bytes.substr(0, 5 * 4 * 4)) << name;
    else
      EXPECT_EQ(other.bytes, t.bytes) << name;
  }
  expect_part(message_of([&] { export_hugging_face(source, cut, gpt2_parameters(cut), 4, folder / "x"); }),
              "wte.weight has shape (7, 4), expected (5, 4)");
}

TEST(HuggingFace, an_export_keeps_dropout_as_it_was_trained) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  for (const double dropout : {0.0, 0.25}) {
    ModelConfig trained = small;
    trained.dropout = dropout;
    const std::string out = folder / fmt::format("{}", dropout);
    export_hugging_face(source, trained, gpt2_parameters(small), std::nullopt, out);
    const auto config = nlohmann::json::parse(read_file(out + "/config.json"));
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) EXPECT_EQ(config.at(key), dropout);
    EXPECT_EQ(read_hugging_face_dropout(out), dropout);
  }
  const auto read = [](const char* text) { return hugging_face_dropout(text, "a/config.json"); };
  EXPECT_EQ(read("{}"), 0.1) << "as transformers has it";
  EXPECT_EQ(read(R"({"attn_pdrop": 0.2, "embd_pdrop": 0.2, "resid_pdrop": 0.2})"), 0.2);
  EXPECT_EQ(read(R"({"attn_pdrop": 0, "embd_pdrop": 0.2, "resid_pdrop": 0.2})"), std::nullopt);
  for (const char* wrong : {"1", "-0.1", "null", "\"0.1\""})
    expect_part(message_of([&] { read(fmt::format("{{\"embd_pdrop\": {}}}", wrong).c_str()); }),
                fmt::format("a/config.json: embd_pdrop = {}; expected a probability", wrong));
}

// It is the tokenizer's, and no number follows from the size of a vocabulary.
TEST(HuggingFace, an_export_says_which_token_ends_a_text) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  const auto exported = [&](const std::string& name, std::optional<int64_t> end_of_text) {
    export_hugging_face(source, small, gpt2_parameters(small), end_of_text, folder / name);
    const auto config = nlohmann::json::parse(read_file(folder / name + "/config.json"));
    const auto generation = nlohmann::json::parse(read_file(folder / name + "/generation_config.json"));
    for (const char* key : {"bos_token_id", "eos_token_id"}) EXPECT_EQ(generation.at(key), config.at(key)) << key;
    EXPECT_EQ(generation.contains("pad_token_id"), end_of_text.has_value());
    return config;
  };
  const auto with = exported("with", small.vocab - 1), without = exported("without", std::nullopt);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    EXPECT_EQ(with.at(key), small.vocab - 1) << key;
    EXPECT_TRUE(without.at(key).is_null()) << key;
  }
  const std::string message = message_of([&] { exported("beyond", small.vocab); });
  expect_part(message, "another model's tokenizer");
  EXPECT_FALSE(fs::exists(folder / "beyond"));
}

// Else an evaluation of what was exported would be another than of the checkpoint.
TEST(HuggingFace, an_export_says_whether_documents_were_kept_apart) {
  Model model(small_tensors(), config_of(small));
  EXPECT_EQ(read_hugging_face_end_of_documents(model.path()), std::nullopt);
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  for (const std::optional<int64_t> end : {std::optional<int64_t>(), {0}, {small.vocab - 1}}) {
    const std::string out = folder / std::to_string(end.value_or(-1));
    export_hugging_face(source, small, gpt2_parameters(small), std::nullopt, out, end);
    EXPECT_EQ(read_hugging_face_end_of_documents(out), end);
    EXPECT_EQ(read_hugging_face_shape(out), small);
  }
  const auto read = [](const std::string& ours) {
    return hugging_face_end_of_documents(R"({"vocab_size": 7, "megalith": )" + ours + "}", "a/config.json");
  };
  for (const char* nothing : {"1", "{}", "null", R"({"isolate_documents": false, "end_of_text": 99})"})
    EXPECT_EQ(read(nothing), std::nullopt) << nothing;
  EXPECT_EQ(read(R"({"isolate_documents": true, "end_of_text": 6})"), 6);
  for (const char* token : {"7", "-1", "1.5", "\"6\"", "null", "18446744073709551615"})
    expect_part(message_of([&] { read(fmt::format(R"({{"isolate_documents": true, "end_of_text": {}}})", token)); }),
                fmt::format("a/config.json: megalith.end_of_text = {}; expected the token", token));
}

TEST(HuggingFace, names_with_a_prefix_masks_and_a_tied_head) {
  auto tensors = small_tensors("transformer.");
  const Raw table = tensors[0].second;
  tensors.push_back({"transformer.h.0.attn.bias", {"U8", {1, 1, 5, 5}, std::string(25, '\1')}});
  tensors.push_back({"transformer.h.0.attn.masked_bias", {"F32", {}, std::string(4, '\0')}});
  tensors.push_back({"lm_head.weight", table});
  HuggingFaceReader reader = open_gpt2(Model(tensors, config_of(small)).path());
  float out = -1;
  reader.read(flat_piece("parameters/wte.weight", {7, 4}, 5, 6), &out);
  EXPECT_EQ(out, 5.0f);
  EXPECT_THROW(reader.shape("parameters/h.0.attn.bias"), Error);

  tensors.back().second.bytes[9]++;
  expect_part(Model(tensors, config_of(small)).open_error(), "lm_head.weight");
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
  expect_part(Model({}, {{"model_type", "llama"}, {"hidden_size", 64}}).open_error(), "model_type = \"llama\"");
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
    const Piece piece = whole_piece("parameters/" + p.name, p.shape);
    std::vector<float> found(static_cast<size_t>(piece.numel())), want(found.size());
    reader.read(piece, found.data());
    whole.read(piece, want.data());
    EXPECT_EQ(found, want) << p.name;
  }
  const auto after = [&](const char* name, const Json& value) {
    Json changed = map;
    value.is_null() ? void(changed.erase(name)) : void(changed[name] = value);
    list(changed);
    return open_error();
  };
  const char* const table = "transformer.wte.weight";
  expect_part(after(table, "b.safetensors"), "says that transformer.wte.weight is in b.safetensors");
  expect_part(after(table, nullptr), "a.safetensors holds transformer.wte.weight, which");
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

TEST(SafeTensors, every_half_and_every_bfloat16) {
  std::string bits(65536 * 2, '\0');
  for (uint32_t i = 0; i < 65536; i++) {
    const auto h = static_cast<uint16_t>(i);
    std::memcpy(bits.data() + i * 2, &h, 2);
  }
  const TemporaryFolder folder;
  spill(folder / "f", safetensors({{"half", {"F16", {65536}, bits}}, {"brain", {"BF16", {65536}, bits}}}));
  const SafeTensors file(folder / "f");
  std::vector<float> half(65536), brain(65536);
  file.read("half", 0, 1, 65536, half.data());
  file.read("brain", 0, 1, 65536, brain.data());
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; i++) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    const double sign = i >> 15 ? -1 : 1;
    double expected = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    if (exponent == 31) expected = fraction ? NAN : INFINITY;
    const float want = static_cast<float>(std::copysign(expected, sign));
    wrong +=
        std::isnan(want) ? !std::isnan(half[i]) : std::bit_cast<uint32_t>(half[i]) != std::bit_cast<uint32_t>(want);
    wrong += std::bit_cast<uint32_t>(brain[i]) != i << 16;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_THROW(file.read("half", 65535, 1, 2, half.data()), Error);
  EXPECT_THROW(file.read("half", 0, INT64_MAX, 2, half.data()), Error);
  EXPECT_THROW(file.read("half", -1, 1, 1, half.data()), Error);
  EXPECT_THROW(file.read("absent", 0, 1, 1, half.data()), Error);
}

TEST(SafeTensors, malformed_files_are_refused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    spill(folder / "f", bytes);
    const std::string message = message_of([&] { SafeTensors file(folder / "f"); });
    expect_part(message, folder / "f");
    expect_part(message, part);
  };
  const std::string eight(8, 'x');
  refused("", "0 bytes");
  refused(std::string(8, '\xff') + "{}", "header");
  refused(with_header("[]", ""), "object");
  refused(with_header("{", ""), "header");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "y"), "end at");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "x"), "truncated");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight), "3 elements");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight), "dimension");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight), "[8, 0)");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight), "offsets");
  refused(
      with_header(R"({"a":{"dtype":"F32","shape":[9007199254740993,9007199254740993,4],"data_offsets":[0,8]}})", eight),
      "too large");
  refused(
      with_header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          eight),
      "overlap");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight), "gap");
  refused(with_header(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight), "dtype");

  const std::string good = safetensors(small_tensors());
  for (size_t length = 0; length < good.size(); length += 1 + length / 20) refused(good.substr(0, length), "");
}

TEST(SafeTensors, any_changed_byte_of_the_header_is_survived) {
  Model model(small_tensors(), config_of(small));
  const std::string path = model.path() + "/model.safetensors";
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::mt19937 random(1);
  for (size_t i = 0; i < 8 + length; i++) {
    poke(path, i, {static_cast<char>(random())});
    try {
      HuggingFaceReader reader = open_gpt2(model.path());
      for (const StoredParameter& p : gpt2_parameters(small)) {
        const Piece whole = whole_piece("parameters/" + p.name, p.shape);
        std::vector<float> out(static_cast<size_t>(whole.numel()));
        reader.read(whole, out.data());
      }
    } catch (const Error&) {
    }
    poke(path, i, {bytes[i]});
  }
}

TEST(SafeTensors, the_writer_wants_every_element) {
  const TemporaryFolder folder;
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  {
    SafeTensorsWriter writer(folder / "f", {{"a", {2, 2}}, {"b", {2}}});
    writer.append(data.data(), 3);
    EXPECT_THROW(writer.finish(), Error);
    writer.append(data.data() + 3, 3);
    EXPECT_THROW(writer.append(data.data(), 1), Error);
    EXPECT_FALSE(fs::exists(folder / "f"));
    writer.finish();
  }
  const SafeTensors file(folder / "f");
  std::array<float, 2> out{};
  file.read("b", 0, 1, 2, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{5, 6}));
  file.read("a", 1, 2, 2, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{2, 4}));
  { SafeTensorsWriter abandoned(folder / "g", {{"a", {2}}}); }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace megalith
