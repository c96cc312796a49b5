// Greedy texts of models of other families than GPT-2, token by token with a cache, as their references have them
// (../shared/reference/families).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoints/hugging_face.h"
#include "kernels/system/files.h"
#include "tests/data/scratch.h"
#include "tests/pure/small_run.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/engine.h"
#include "trainer/parallel/decoder.h"
#include "trainer/session/alone.h"

namespace megalith {
namespace {

class FamilyTexts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, FamilyTexts, testing::Values("llama3", "llama2", "mistral", "qwen2", "qwen3", "neox"),
                         [](const auto& suite) { return std::string(suite.param); });

int32_t likeliest(const std::vector<float>& logits, size_t row, int64_t vocab) {
  const auto begin = logits.begin() + static_cast<ptrdiff_t>(row) * vocab;
  return static_cast<int32_t>(std::max_element(begin, begin + vocab) - begin);
}

void expect_greedy_texts(const WeightSource& weights, const nlohmann::json& texts) {
  Config config;
  config.model = weights.model;
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  config = resolve(config);
  config.batch.global_batch_size = 1;
  const auto places = static_cast<int64_t>(texts.size());
  const Alone alone;
  const auto build = [&](const Plan& plan, Runtime& runtime) {
    return std::make_unique<Decoder>(plan, runtime, places, config.model.context);
  };
  const auto rehearse = [&](Decoder& decoder, const Plan&) {
    std::vector<float> logits;
    decoder.begin(0, std::vector<int32_t>(static_cast<size_t>(config.model.context)));
    decoder.read_logits(logits);
    std::vector<Decoder::Next> next;
    for (int64_t place = 0; place < places; place++) next.push_back({place, config.model.context - 1, 0});
    decoder.go_on(next);
    decoder.read_logits(logits);
  };
  Engine<Decoder> engine(config, alone, World::cpu, 1, *weights.tensors, build, rehearse);
  Decoder& decoder = *engine.worker;

  // All texts go on side by side, each from where its prompt ends.
  std::vector<std::vector<int32_t>> prompts, found(static_cast<size_t>(places));
  std::vector<float> logits;
  for (int64_t place = 0; place < places; place++) {
    prompts.push_back(texts[static_cast<size_t>(place)].at("prompt").get<std::vector<int32_t>>());
    decoder.begin(place, prompts.back());
    decoder.read_logits(logits);
    found[static_cast<size_t>(place)].push_back(likeliest(logits, 0, config.model.vocab));
  }
  for (int turn = 1; turn < 60; turn++) {
    std::vector<Decoder::Next> next;
    for (size_t place = 0; place < found.size(); place++)
      next.push_back({static_cast<int64_t>(place),
                      static_cast<int64_t>(prompts[place].size() + found[place].size()) - 1, found[place].back()});
    decoder.go_on(next);
    decoder.read_logits(logits);
    for (size_t place = 0; place < found.size(); place++)
      found[place].push_back(likeliest(logits, place, config.model.vocab));
  }
  ASSERT_EQ(places, 5);
  for (size_t place = 0; place < found.size(); place++)
    EXPECT_EQ(found[place], texts[place].at("continuation").get<std::vector<int32_t>>()) << place;
}

TEST_P(FamilyTexts, AreGreedyAsTheReferencesAlsoFromAnExport) {
  const std::string folder = MEGALITH_SOURCE_DIR "/../shared/reference/families/" + std::string(GetParam());
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference at " << folder;
  const auto texts = nlohmann::json::parse(read_file(folder + "/greedy.json"));
  const WeightSource weights = open_weights(folder);
  expect_greedy_texts(weights, texts);
  const test::Scratch scratch;
  const std::string out = scratch.path("out");
  export_hugging_face(*weights.tensors, weights.model, stored_parameters(weights.model), {}, out);
  expect_greedy_texts(open_weights(out), texts);
}

}  // namespace
}  // namespace megalith
