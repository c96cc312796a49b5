// The learning rate against the reference's numbers and at the edges of its formula.
#include "trainer/step/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace megalith {
namespace {

OptimizerConfig rates(Decay decay, int64_t warmup, int64_t decay_steps) {
  OptimizerConfig config;
  config.learning_rate = 8e-3;
  config.min_learning_rate = 2e-3;
  config.decay = decay;
  config.warmup_steps = warmup;
  config.decay_steps = decay_steps;
  return config;
}

TEST(LearningRate, EqualsTheReferences) {
  const std::filesystem::path folder = MEGALITH_SOURCE_DIR "/../shared/reference";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no " << folder;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path() / "reference.json");
    if (!file) continue;
    const nlohmann::json reference = nlohmann::json::parse(file), &recipe = reference.at("recipe");
    OptimizerConfig config;
    config.learning_rate = recipe.at("lr");
    config.min_learning_rate = recipe.at("min_lr");
    config.warmup_steps = recipe.at("warmup");
    config.decay_steps = recipe.at("decay_steps");
    for (const auto& step : reference.at("steps")) {
      EXPECT_NEAR(learning_rate_at(config, step.at("step")), step.at("lr"), 1e-9) << entry.path() << step;
      compared++;
    }
  }
  EXPECT_GT(compared, 0);
}

// Warm-up, a constant rate, and a decay: linear or by 1 - sqrt.
TEST(LearningRate, EqualsTheReferencesTableOfThreeStretches) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/../shared/reference/wsd.json");
  if (!file) GTEST_SKIP() << "no wsd.json";
  int compared = 0;
  for (const auto& table : nlohmann::json::parse(file)) {
    const nlohmann::json& s = table.at("settings");
    OptimizerConfig config;
    config.learning_rate = s.at("lr");
    config.min_learning_rate = s.at("min_lr");
    config.warmup_steps = s.at("warmup");
    config.decay_steps = s.at("steps");
    const auto decay = s.contains("decay_steps")
                           ? s.at("decay_steps").get<int64_t>()
                           : std::llround(s.at("decay_fraction").get<double>() * s.at("steps").get<double>());
    config.decay_begin = config.decay_steps - decay;
    config.decay = s.at("decay") == "linear" ? Decay::linear : Decay::sqrt;
    for (size_t step = 0; step < table.at("lr").size(); step++, compared++)
      EXPECT_NEAR(learning_rate_at(config, static_cast<int64_t>(step)), table.at("lr")[step], 1e-9) << s << step;
  }
  EXPECT_GT(compared, 100);
}

TEST(LearningRate, WarmsUpFromTheFirstShareToTheWhole) {
  const OptimizerConfig config = rates(Decay::cosine, 4, 20);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 3), 8e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 4), 8e-3) << "decay starts from the top";
}

TEST(LearningRate, Shapes) {
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 4, 20), 12), 5e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::linear, 4, 20), 8), 6.5e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::constant, 4, 20), 19), 8e-3);
  for (Decay decay : {Decay::cosine, Decay::linear}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(rates(decay, 4, 20), 20), 2e-3);
    EXPECT_DOUBLE_EQ(learning_rate_at(rates(decay, 4, 20), 1'000'000'000'000), 2e-3) << "and stays there";
    for (int64_t s = 4; s < 20; s++)
      EXPECT_GT(learning_rate_at(rates(decay, 4, 20), s), learning_rate_at(rates(decay, 4, 20), s + 1));
  }
}

TEST(LearningRate, IsTheHighestUntilTheDecayBegins) {
  for (Decay decay : {Decay::cosine, Decay::linear, Decay::sqrt}) {
    OptimizerConfig config = rates(decay, 4, 20);
    config.decay_begin = 12;
    EXPECT_DOUBLE_EQ(learning_rate_at(config, 1), 4e-3);
    for (int64_t s = 4; s <= 12; s++) EXPECT_DOUBLE_EQ(learning_rate_at(config, s), 8e-3) << s;
    for (int64_t s = 12; s < 20; s++) EXPECT_GT(learning_rate_at(config, s), learning_rate_at(config, s + 1));
    EXPECT_DOUBLE_EQ(learning_rate_at(config, 20), 2e-3);
  }
  OptimizerConfig config = rates(Decay::sqrt, 4, 20);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 8), 5e-3) << "a quarter of the way, which is half of the decay";
}

TEST(LearningRate, Edges) {
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 0, 10), 0), 8e-3) << "no warm-up";
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 5, 5), 5), 8e-3) << "nothing left to decay over";
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 5, 5), 6), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 0, 1), 1), 2e-3);
}

}  // namespace
}  // namespace megalith
