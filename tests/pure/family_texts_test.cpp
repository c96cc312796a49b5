// Greedy texts of models of other families than GPT-2, token by token with a cache, and the logits of whole passes and
// with a cache, as their references have them (../shared/reference/families).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoints/hugging_face.h"
#include "kernels/system/files.h"
#include "tests/data/scratch.h"
#include "tests/end_to_end/reference_tensors.h"
#include "tests/pure/greedy_texts.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/session/single_rank.h"

namespace megalith {
namespace {

class FamilyTexts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, FamilyTexts, testing::Values("llama3", "llama2", "mistral", "qwen2", "qwen3", "neox"),
                         [](const auto& suite) { return std::string(suite.param); });

TEST_P(FamilyTexts, AreGreedyAsTheReferencesAlsoFromAnExport) {
  const std::string folder = MEGALITH_SOURCE_DIR "/../shared/reference/families/" + std::string(GetParam());
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference at " << folder;
  const auto texts = nlohmann::json::parse(read_file(folder + "/greedy.json"));
  const WeightSource weights = open_weights(folder);
  expect_greedy_texts(weights, texts, SingleRank());
  const test::Scratch scratch;
  const std::string out = scratch.path("out");
  export_hugging_face(*weights.tensors, weights.model, stored_parameters(weights.model), out);
  expect_greedy_texts(open_weights(out), texts, SingleRank());
}

// Compares the first microbatch: each row after a pass over all that comes before it, and after one token more with a
// cache.
TEST_P(FamilyTexts, LogitsAreTheReferencesFromBothFormsOfConfig) {
  const std::string folder = MEGALITH_SOURCE_DIR "/../shared/reference/families/" + std::string(GetParam());
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference at " << folder;
  const auto recipe = nlohmann::json::parse(read_file(folder + "/reference.json")).at("recipe");
  const size_t T = recipe.at("seq"), B = recipe.at("batch");
  const std::string bytes = read_file(folder + "/tokens.bin");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < B * T; i++)
    tokens.push_back(static_cast<uint8_t>(bytes[2 * i]) + 256 * static_cast<uint8_t>(bytes[2 * i + 1]));
  const e2e::Values expected = e2e::read_hdf5(folder + "/reference.h5", "logits");
  const test::Scratch scratch;
  const std::string older = scratch.path("older");
  std::filesystem::copy(folder, older);
  std::filesystem::remove(older + "/config.json");
  std::filesystem::copy_file(folder + "/config.v4.json", older + "/config.json");
  for (const std::string& from : {folder, older}) {
    const WeightSource weights = open_weights(from);
    const SingleRank alone;
    Speaker speaker(weights, 2, alone);
    e2e::Values whole, cached;
    for (size_t b = 0; b < B; b++)
      for (size_t t = 0; t < T; t++) {
        const std::span<const int32_t> text(tokens.data() + b * T, t + 1);
        const std::vector<float> all = speaker.begin(0, text);
        const std::vector<float> one =
            t == 0 ? speaker.begin(1, text) : speaker.advance({{1, static_cast<int64_t>(t), text.back()}});
        whole.insert(whole.end(), all.begin(), all.end());
        cached.insert(cached.end(), one.begin(), one.end());
      }
    for (const e2e::Values& found : {whole, cached}) {
      const double error = e2e::relative_error(found, expected);
      EXPECT_LT(error, 2e-5);
      fmt::print("  {}: logits {:.1e}\n", GetParam(), error);
    }
  }
}

}  // namespace
}  // namespace megalith
