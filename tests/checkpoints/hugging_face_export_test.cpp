// A checkpoint as a Hugging Face folder: its files, types and table, and what config.json says of the model.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/checkpoints/raw_safetensors.h"

namespace megalith {
namespace {

using namespace test;

TEST(HuggingFace, an_export_overwrites_nothing) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  for (const std::string name : {"config.json", "generation_config.json", "model.safetensors"}) {
    const TemporaryFolder folder;
    spill(folder / name, "precious");
    expect_part(message_of([&] { export_hugging_face(source, small, gpt2_parameters(small), folder.path()); }),
                folder / name);
    EXPECT_EQ(read_file(folder / name), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  }
  const TemporaryFolder folder;
  ModelConfig other = small;
  other.vocab = 8;
  expect_part(message_of([&] { export_hugging_face(source, other, gpt2_parameters(other), folder / "x"); }),
              "wte.weight");
  EXPECT_FALSE(fs::exists(folder / "x"));
  // Only GPT-2's choices can be written as a folder of GPT-2.
  ModelConfig rms = small;
  rms.norm = NormKind::rms;
  expect_part(message_of([&] { export_hugging_face(source, rms, gpt2_parameters(small), folder / "y"); }),
              "model.norm = \"rms\"");
  EXPECT_FALSE(fs::exists(folder / "y"));
}

// Files of at most so many bytes, or of one tensor, which the index names; each value as bf16 has it.
TEST(HuggingFace, an_export_in_several_files_and_in_bf16) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  constexpr int64_t most = 100;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string out = folder / name_of(type);
    export_hugging_face(source, small, gpt2_parameters(small), out, {}, {.type = type, .most_bytes = most});
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
      source.read(whole_tensor("parameters/" + p.name, p.shape), values.data());
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
  expect_part(message_of([&] { export_hugging_face(source, small, gpt2_parameters(small), folder / "taken"); }),
              "model.safetensors.index.json exists already");
}

TEST(HuggingFace, an_export_leaves_out_the_padding_of_the_table) {
  Model model(small_tensors(), config_of(small));
  HuggingFaceReader source = open_gpt2(model.path());
  const TemporaryFolder folder;
  ModelConfig cut = small;
  cut.vocab = 5;
  export_hugging_face(source, cut, gpt2_parameters(cut), folder / "cut", {},
                      {.cuts_table = true, .generation = {.ends = {4}, .begin = 4}});
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
  expect_part(message_of([&] { export_hugging_face(source, cut, gpt2_parameters(cut), folder / "x"); }),
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
    export_hugging_face(source, trained, gpt2_parameters(small), out);
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
    ExportForm form;
    if (end_of_text) form.generation = {.ends = {static_cast<int32_t>(*end_of_text)}, .begin = end_of_text};
    export_hugging_face(source, small, gpt2_parameters(small), folder / name, {}, form);
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
    export_hugging_face(source, small, gpt2_parameters(small), out, end);
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

}  // namespace
}  // namespace megalith
