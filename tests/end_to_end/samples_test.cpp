// train.sample_every: texts that a model writes while it trains, in every layout, without a bit of the training.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

const std::string config_of_samples =
    "[model]\nlayers = 4\nhidden = 32\nheads = 4\ncontext = 40\ndropout = 0.1\n"
    "[data]\ntrain = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\n"
    "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 1\n"
    "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 2\n"
    "[train]\nsteps = 6\nevaluate_every = 3\nevaluate_batches = 1\nseed = 5\n"
    "[checkpoint]\nevery = 4\n";

const Args texts_every_2{"train.sample_every=2", "train.sample_prompts=[\"The model\", \"\", \"megalith \"]",
                         "train.sample_tokens=24"};

Args both_of(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// {"step": 2, "texts": [...]} of each step that has them.
std::vector<nlohmann::json> texts_of(const std::string& run_folder) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& line : read_metrics(run_folder))
    if (line.contains("texts")) found.push_back({{"step", line.at("step")}, {"texts", line.at("texts")}});
  return found;
}

class WrittenTexts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    write_file(*scratch_ / "text.txt", read_file(MEGALITH_SOURCE_DIR "/configs/README.md") +
                                           read_file(MEGALITH_SOURCE_DIR "/trainer/README.md"));
    write_file(*scratch_ / "config.toml", config_of_samples);
    succeed(
        megalith({"prepare", "--text", "text.txt", "--tokenizer", "train:300", "--out", "data", "--validation", "0.1"}),
        *scratch_);
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static void train_into(const std::string& folder, int ranks, const Args& layout, const Args& more) {
    train(scratch_->folder(), ranks, both_of(both_of(layout, more), {"run.output=" + folder}));
  }
  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> WrittenTexts::scratch_;

struct SampledLayout {
  const char* name;
  int ranks;
  Args layout;
};
const std::vector<SampledLayout> layouts_of_samples{
    {"alone", 1, {}},
    {"sequence", 2, {"parallel.tensor_parallel_degree=2", "parallel.sequence_parallel=true"}},
    {"virtual", 2, {"parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2"}},
    {"halves",
     2,
     {"parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2", "parallel.pipeline_schedule=zb_h1"}},
    {"v", 2, {"parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2", "parallel.pipeline_schedule=zb_v"}},
    {"sharded", 2, {"parallel.sharding_strategy=full_shard", "parallel.max_live_parameters=0"}},
    {"offloaded",
     2,
     {"memory.offload_parameters=true", "memory.offload_optimizer=1.0", "memory.offload_activations=true",
      "memory.activation_checkpointing=each"}},
    {"tensor", 2, {"parallel.tensor_parallel_degree=2"}},
    {"pipeline", 2, {"parallel.pipeline_parallel_degree=2"}},
    {"stages_of_tensors", 4, {"parallel.pipeline_parallel_degree=2", "parallel.tensor_parallel_degree=2"}}};

TEST_F(WrittenTexts, ChangeNoBitOfTheTrainingAndAreTheSameInEveryLayout) {
  std::vector<nlohmann::json> expected;
  int64_t counted = 0;
  for (const auto& [name, ranks, layout] : layouts_of_samples) {
    if (counted++ == taken("WrittenTexts.layouts")) break;
    SCOPED_TRACE(name);
    const std::string with = std::string(name) + "-with", without = std::string(name) + "-without";
    train_into(without, ranks, layout, {});
    train_into(with, ranks, layout, texts_every_2);
    EXPECT_EQ(read_steps(*scratch_ / with), read_steps(*scratch_ / without));
    for (const int64_t step : {4, 6})
      expect_same_rank_files(*scratch_ / with + "/checkpoints/" + step_name(step),
                             *scratch_ / without + "/checkpoints/" + step_name(step));
    EXPECT_TRUE(texts_of(*scratch_ / without).empty());
    const std::vector<nlohmann::json> found = texts_of(*scratch_ / with);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  }
  ASSERT_EQ(expected.size(), 3u);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(expected[i].at("step"), 2 * (i + 1));
    ASSERT_EQ(expected[i].at("texts").size(), 3u);
    EXPECT_EQ(expected[i].at("texts")[0].at("prompt"), "The model");
    EXPECT_EQ(expected[i].at("texts")[1].at("prompt"), "");
    EXPECT_GT(expected[i].at("texts")[0].at("text").get<std::string>().size(), 10u);
  }
  EXPECT_NE(expected[0].at("texts")[0].at("text"), expected[1].at("texts")[0].at("text"));
}

TEST_F(WrittenTexts, AreThoseOfGenerateAndStandInLogReportAndPlan) {
  write_file(*scratch_ / "prompts.txt", "The model\n");
  const Args greedy{"train.sample_every=3", "train.sample_prompts=prompts.txt", "train.sample_tokens=60",
                    "train.sample_temperature=0"};
  train_into("greedy", 2, {}, greedy);
  const std::string text = texts_of(*scratch_ / "greedy").back().at("texts")[0].at("text");
  const std::string generated = succeed(megalith({"generate", "--checkpoint", "greedy", "--prompt", "The model",
                                                  "--tokens", "60", "--temperature", "0"}),
                                        *scratch_)
                                    .out;
  // Beyond the context both go on from their last half, which begins elsewhere where there is less room.
  EXPECT_EQ(generated.substr(0, 40), ("The model" + text).substr(0, 40));
  const std::string log = read_file(*scratch_ / "greedy/log.txt");
  EXPECT_NE(log.find("step 6  sample after \"The model\": " + nlohmann::json(text).dump()), std::string::npos) << log;
  succeed(megalith({"report", "greedy", "--out", "report.html"}), *scratch_);
  const std::string page = read_file(*scratch_ / "report.html");
  EXPECT_NE(page.find("\"texts\":[{\"prompt\":\"The model\""), std::string::npos);
  EXPECT_NE(page.find("{\"step\":6,\"text\":"), std::string::npos);
  const std::string plan = succeed(megalith(both_of({"plan", "config.toml", "--ranks", "2"}, greedy)), *scratch_).out;
  EXPECT_NE(plan.find("of cached keys and values of texts (train.sample_every)"), std::string::npos) << plan;
  succeed(megalith({"data", "audit", "greedy"}), *scratch_);
}

TEST_F(WrittenTexts, AResumedRunGoesOnWithThem) {
  train_into("whole", 2, {}, texts_every_2);
  train_into("parts", 2, {}, both_of(texts_every_2, {"train.steps=4", "optimizer.decay_steps=6"}));
  train_into("parts", 2, {}, both_of(texts_every_2, {"optimizer.decay_steps=6"}));
  EXPECT_EQ(texts_of(*scratch_ / "parts"), texts_of(*scratch_ / "whole"));
}

TEST_F(WrittenTexts, WhatCannotBeWrittenIsRefused) {
  const auto refused = [&](const Args& more) {
    const Result result =
        run(megalith(both_of({"train", "config.toml", "run.output=refused"}, more)), scratch_->folder());
    EXPECT_EQ(result.status, 1) << result.text();
    return result.err;
  };
  const std::string absent = refused({"train.sample_every=2", "train.sample_prompts=The model"});
  EXPECT_NE(absent.find("train.sample_prompts = [\"The model\"]"), std::string::npos) << absent;
  std::filesystem::create_directory(*scratch_ / "bare");
  for (const char* file : {"train.bin", "train.idx"})
    std::filesystem::copy(*scratch_ / "data/" + file, *scratch_ / "bare/" + file);
  const std::string nameless = refused({"train.sample_every=2", "data.train=bare/train.bin",
                                        "data.validation=", "train.evaluate_every=0", "model.vocab=300"});
  EXPECT_NE(nameless.find("there is no tokenizer"), std::string::npos) << nameless;
}

}  // namespace
}  // namespace megalith::e2e
