// Calibration finds the numbers that made the measurements.
#include "trainer/planner/calibrate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/system/files.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

const std::string profile = MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml";

class Runs : public testing::Test {
 protected:
  // A run of 8 ranks that takes what is predicted for `truth`; two slow steps to begin with, which do not count.
  std::string run(const std::string& name, const Hardware& truth, int tensor, int64_t hidden) {
    Config config = small_config();
    config.model = {.layers = 4, .hidden = hidden, .heads = 8, .vocab = 1000, .context = 256, .dropout = 0};
    config.batch = {.sequence_length = 256, .global_batch_size = 64, .microbatch_size = 2};
    config.parallel.tensor_parallel_degree = tensor;
    config.hardware = {.profile = profile, .nodes = 1};
    config.parallel.ranks_per_node = 8;
    const std::string folder = scratch_.path(name);
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.toml", to_toml(config), {.replace = true});
    const double seconds = predict(config, truth, dry_run_stages(config, {}, 8, true)).seconds;
    std::string lines;
    for (int step = 1; step <= 7; step++)
      lines += fmt::format("{{\"step\":{},\"step_seconds\":{},\"ranks\":8}}\n", step,
                           step < 3 ? 9.0 : seconds * (1 + 0.1 * (step - 5)));
    write_file(folder + "/metrics.jsonl", lines + "{\"step\":7,\"validation_loss\":1.0}\n", {.replace = true});
    return folder;
  }

  const test::Scratch scratch_;
};

TEST_F(Runs, NumbersAreFound) {
  Hardware truth = load_hardware(profile);
  truth.calibrated.gemm *= 0.5;
  truth.calibrated.collective_delay *= 3;
  std::vector<std::string> folders;
  for (int tensor : {1, 2, 4, 8})
    for (int hidden : {256, 2048}) folders.push_back(run(fmt::format("{}-{}", tensor, hidden), truth, tensor, hidden));
  std::vector<MeasuredRun> runs = read_runs(folders);
  EXPECT_LT(runs.back().predicted, 0.9 * runs.back().seconds);
  const std::vector<Fitted> fitted = calibrate(runs, {"calibrated.gemm", "calibrated.collective_delay"});
  ASSERT_EQ(fitted.size(), 2u);
  EXPECT_EQ(fitted[0].scope, "NVIDIA A100-SXM4-40GB");
  EXPECT_NEAR(fitted[0].after / truth.calibrated.gemm, 1, 0.03);
  EXPECT_NEAR(fitted[1].after / truth.calibrated.collective_delay, 1, 0.03);
  for (const MeasuredRun& r : runs) EXPECT_NEAR(r.predicted / r.seconds, 1, 0.02) << r.folder;
  EXPECT_NE(report(runs, fitted).find("8 runs: median error"), std::string::npos);
}

TEST_F(Runs, NothingMovesANumberThatTheySayNothingAbout) {
  const Hardware truth = load_hardware(profile);
  std::vector<MeasuredRun> runs = read_runs({run("a", truth, 1, 256)});
  const std::vector<Fitted> fitted = calibrate(runs, {"calibrated.gemm", "calibrated.network_link"});
  EXPECT_NEAR(fitted[0].after / fitted[0].before, 1, 1e-4);
  EXPECT_EQ(fitted[1].after, fitted[1].before) << "one node has no network";
}

TEST_F(Runs, TheFirstStepsDoNotCount) {
  const Hardware truth = load_hardware(profile);
  const std::vector<MeasuredRun> runs = read_runs({run("a", truth, 1, 256)});
  EXPECT_NEAR(runs[0].seconds / runs[0].predicted, 1, 1e-6) << "the median of the others";
}

// Ranks are said once a start; the last counts.
TEST_F(Runs, StartsSayWhatIsConstant) {
  const Hardware truth = load_hardware(profile);
  const std::string folder = run("a", truth, 1, 256);
  const double before = read_runs({folder})[0].seconds;
  std::string text = read_file(folder + "/metrics.jsonl");
  for (size_t at = 0; (at = text.find(",\"ranks\":8")) != std::string::npos;) text.erase(at, 10);
  EXPECT_EQ(text.find("ranks"), std::string::npos);
  write_file(folder + "/metrics.jsonl", text, {.replace = true});
  EXPECT_NE(message_of([&] { read_runs({folder}); }).find("none with ranks"), std::string::npos);
  write_file(folder + "/metrics.jsonl", "{\"start\":{\"completed_steps\":0,\"ranks\":8}}\n" + text, {.replace = true});
  const MeasuredRun found = read_runs({folder})[0];
  EXPECT_EQ(found.seconds, before);
  EXPECT_NEAR(found.seconds / found.predicted, 1, 1e-6);
}

TEST_F(Runs, WhatIsMissingIsSaid) {
  const std::string folder = run("a", load_hardware(profile), 1, 256);
  write_file(folder + "/metrics.jsonl", "", {.replace = true});
  EXPECT_NE(message_of([&] { read_runs({folder}); }).find("train some steps"), std::string::npos);
  EXPECT_NE(message_of([&] {
              std::vector<MeasuredRun> runs = read_runs({run("b", load_hardware(profile), 1, 256)});
              calibrate(runs, {"device.per_node"});
            }).find("not a number of a hardware profile that can be fitted"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
