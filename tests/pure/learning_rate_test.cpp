// The learning rate against the reference's numbers and at the edges of its formula.
#include "trainer/step/learning_rate.h"

#include <gtest/gtest.h>

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

TEST(LearningRate, Edges) {
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 0, 10), 0), 8e-3) << "no warm-up";
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 5, 5), 5), 8e-3) << "nothing left to decay over";
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 5, 5), 6), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(rates(Decay::cosine, 0, 1), 1), 2e-3);
}

}  // namespace
}  // namespace megalith
