// GPT-NeoX's folders have the rows of q, k and v head by head, ours q of all heads first: in whole models and in
// adapters, written and read.
#include <gtest/gtest.h>

#include "checkpoints/hugging_face.h"
#include "checkpoints/peft_folder.h"
#include "checkpoints/safetensors_folder.h"
#include "configs/adapter.h"
#include "tests/data/scratch.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {
namespace {

// The rows of ours, two heads of two features, in the order of GPT-NeoX: q, k and v of the first head, then of the
// second.
const std::vector<float> rows_in_neox = {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};

ModelConfig neox_of_two_heads() {
  ModelConfig m{.layers = 1, .hidden = 4, .heads = 2, .vocab = 5, .context = 3};
  m.positions = Positions::rotary;
  m.tied_head = false;
  return m;
}

// Each element is the number of its row.
std::vector<float> numbered_rows(int64_t rows, int64_t cols) {
  std::vector<float> values;
  for (int64_t row = 0; row < rows; row++)
    values.insert(values.end(), static_cast<size_t>(cols), static_cast<float>(row));
  return values;
}

// Returns the first element of each row.
std::vector<float> first_column(const SafeTensors& file, const std::string& name) {
  const SafeTensors::Entry& entry = file.entry(name);
  const int64_t cols = entry.numel / entry.shape[0];
  std::vector<float> first(static_cast<size_t>(entry.shape[0]));
  file.read(name, 0, cols, entry.shape[0], first.data());
  return first;
}

TEST(NeoxRows, OfAWholeModelAreHeadByHead) {
  const ModelConfig model = neox_of_two_heads();
  std::map<std::string, MemorySource::Values> ours;
  for (const StoredParameter& p : stored_parameters(model)) {
    const int64_t cols = p.shape.size() == 1 ? 1 : p.shape[1];
    ours[std::string(parameters_path) + p.name] = {p.shape, numbered_rows(p.shape[0], cols)};
  }
  MemorySource source(ours);
  const test::Scratch scratch;
  const std::string folder = scratch.path("out");
  export_hugging_face(source, model, stored_parameters(model), folder);

  const SafeTensors file(folder + "/model.safetensors");
  for (const char* kind : {"weight", "bias"})
    EXPECT_EQ(first_column(file, fmt::format("gpt_neox.layers.0.attention.query_key_value.{}", kind)), rows_in_neox)
        << kind;
  EXPECT_EQ(first_column(file, "gpt_neox.layers.0.attention.dense.weight"), numbered_rows(4, 1));

  const WeightSource again = open_weights(folder);
  for (const auto& [name, values] : ours) {
    std::vector<float> read(values.values.size());
    again.tensors->read(whole_tensor(name, values.shape), read.data());
    EXPECT_EQ(read, values.values) << name;
  }
}

TEST(NeoxRows, OfAdaptersAreHeadByHead) {
  ModelConfig model = neox_of_two_heads();
  model.adapter.rank = 3;
  model.adapter.target_modules = "query_key_value\ndense";
  const std::string ours_of_qkv = std::string(parameters_path) + "h.0.attn.c_attn",
                    ours_of_dense = std::string(parameters_path) + "h.0.attn.c_proj";
  MemorySource source({{ours_of_qkv + ".lora_A.weight", {{3, 4}, numbered_rows(3, 4)}},
                       {ours_of_qkv + ".lora_B.weight", {{12, 3}, numbered_rows(12, 3)}},
                       {ours_of_dense + ".lora_A.weight", {{3, 4}, numbered_rows(3, 4)}},
                       {ours_of_dense + ".lora_B.weight", {{4, 3}, numbered_rows(4, 3)}}});
  const test::Scratch scratch;
  const std::string folder = scratch.path("out");
  export_peft(source, model, "base", folder);

  const SafeTensors file(folder + "/adapter_model.safetensors");
  const std::string attention = "base_model.model.gpt_neox.layers.0.attention.";
  EXPECT_EQ(first_column(file, attention + "query_key_value.lora_B.weight"), rows_in_neox);
  EXPECT_EQ(first_column(file, attention + "query_key_value.lora_A.weight"), numbered_rows(3, 1))
      << "inputs have no heads";
  EXPECT_EQ(first_column(file, attention + "dense.lora_B.weight"), numbered_rows(4, 1));

  MemorySource again = read_peft(folder, model);
  std::vector<float> read(36);
  again.read(whole_tensor(ours_of_qkv + ".lora_B.weight", {12, 3}), read.data());
  EXPECT_EQ(read, numbered_rows(12, 3));
}

}  // namespace
}  // namespace megalith
