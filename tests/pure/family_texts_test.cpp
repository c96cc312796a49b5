// Greedy texts of models of other families than GPT-2, token by token with a cache, and the logits of whole passes and
// with a cache, as their references have them (../shared/reference/families).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoints/hugging_face.h"
#include "kernels/system/files.h"
#include "tests/data/scratch.h"
#include "tests/end_to_end/reference_tensors.h"
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

// A model on one rank, with places for texts of its whole context.
class Speaker {
 public:
  Speaker(const WeightSource& weights, int64_t places) : config_(config_of(weights)) {
    const auto build = [&](const Plan& plan, Runtime& runtime) {
      return std::make_unique<Decoder>(plan, runtime, places, config_.model.context);
    };
    const auto rehearse = [&](Decoder& decoder, const Plan&) {
      std::vector<float> logits;
      decoder.begin(0, std::vector<int32_t>(static_cast<size_t>(config_.model.context)));
      decoder.read_logits(logits);
      std::vector<Decoder::Next> next;
      for (int64_t place = 0; place < places; place++) next.push_back({place, config_.model.context - 1, 0});
      decoder.go_on(next);
      decoder.read_logits(logits);
    };
    engine_.emplace(config_, alone_, World::cpu, 1, *weights.tensors, build, rehearse);
  }
  int64_t vocab() const { return config_.model.vocab; }

  // Returns the logits after the last token.
  std::vector<float> begin(int64_t place, std::span<const int32_t> tokens) {
    engine_->worker->begin(place, tokens);
    return logits();
  }
  std::vector<float> go_on(const std::vector<Decoder::Next>& next) {
    engine_->worker->go_on(next);
    return logits();
  }

 private:
  static Config config_of(const WeightSource& weights) {
    Config config;
    config.model = weights.model;
    config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
    config = resolve(config);
    config.batch.global_batch_size = 1;
    return config;
  }
  std::vector<float> logits() {
    std::vector<float> logits;
    engine_->worker->read_logits(logits);
    return logits;
  }

  const Alone alone_;
  Config config_;
  std::optional<Engine<Decoder>> engine_;
};

void expect_greedy_texts(const WeightSource& weights, const nlohmann::json& texts) {
  const auto places = static_cast<int64_t>(texts.size());
  Speaker speaker(weights, places);
  // All texts go on side by side, each from where its prompt ends.
  std::vector<std::vector<int32_t>> prompts, found(static_cast<size_t>(places));
  for (int64_t place = 0; place < places; place++) {
    prompts.push_back(texts[static_cast<size_t>(place)].at("prompt").get<std::vector<int32_t>>());
    found[static_cast<size_t>(place)].push_back(likeliest(speaker.begin(place, prompts.back()), 0, speaker.vocab()));
  }
  for (int turn = 1; turn < 60; turn++) {
    std::vector<Decoder::Next> next;
    for (size_t place = 0; place < found.size(); place++)
      next.push_back({static_cast<int64_t>(place),
                      static_cast<int64_t>(prompts[place].size() + found[place].size()) - 1, found[place].back()});
    const std::vector<float> logits = speaker.go_on(next);
    for (size_t place = 0; place < found.size(); place++)
      found[place].push_back(likeliest(logits, place, speaker.vocab()));
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

// Of the first microbatch: each row after a pass over all that comes before it, and after one token more with a cache.
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
    Speaker speaker(weights, 2);
    e2e::Values whole, cached;
    for (size_t b = 0; b < B; b++)
      for (size_t t = 0; t < T; t++) {
        const std::span<const int32_t> text(tokens.data() + b * T, t + 1);
        const std::vector<float> all = speaker.begin(0, text);
        const std::vector<float> one =
            t == 0 ? speaker.begin(1, text) : speaker.go_on({{1, static_cast<int64_t>(t), text.back()}});
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
