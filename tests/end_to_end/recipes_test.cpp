// Recipes that name their machines, rehearsed: their layout with a small model on 8 ranks, killed and resumed, takes
// the course of the same small model on one rank.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/process.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

const std::string root = MEGALITH_SOURCE_DIR;

// Returns what it sets in [model], [parallel] and [memory], without the numbers.
std::string mechanisms(const std::string& recipe) {
  std::string all;
  bool wanted = false;
  std::istringstream lines(recipe);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) wanted = line == "[model]" || line == "[parallel]" || line == "[memory]";
    line = line.substr(0, line.find('#'));
    if (wanted)
      std::ranges::copy_if(line, std::back_inserter(all), [](unsigned char c) { return !std::isdigit(c) && c != ' '; });
  }
  return all;
}

// Recipes with [hardware]: the others are for whatever machine is at hand.
std::vector<std::string> cluster_recipes() {
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator(root + "/configs"))
    if (entry.path().extension() == ".toml" && read_file(entry.path()).find("[hardware]") != std::string::npos)
      all.insert(entry.path().stem());
  EXPECT_GE(all.size(), 16u);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : all)
    if (seen.insert(mechanisms(read_file(root + "/configs/" + name + ".toml"))).second ||
        taken("Recipes.of_clusters_are_rehearsed"))
      names.push_back(name);
  return names;
}

// Makes at least 3 steps: as many as the run has made when it is killed, and two after.
void rehearse(const Scratch& scratch, const std::string& recipe) {
  SCOPED_TRACE(recipe);
  const int ranks = recipe.ends_with("_24gib") ? 1 : 8;
  const std::string config = root + "/configs/" + recipe + ".toml", folder = scratch / (recipe + "-shrunk");
  Args args{"train", config, "--shrink", std::to_string(ranks), "run.output=" + recipe};
  for (const char* override : {"data.train=data/train.bin", "data.validation=data/validation.bin", "data.tokenizer=",
                               "train.steps=100000", "optimizer.warmup_steps=2", "optimizer.decay_steps=100",
                               "optimizer.learning_rate=3e-3", "checkpoint.every=1", "precision.compute=fp32"})
    args.push_back(override);
  {
    Process killed(mpirun(ranks, args), scratch.folder());
    while (killed.running() && killed.seconds() < 60 && checkpoints_in(folder + "/checkpoints").empty())
      sleep_for(0.01);
    killed.kill_all();
  }
  const std::vector<std::string> saved = checkpoints_in(folder + "/checkpoints");
  ASSERT_FALSE(saved.empty());
  const int64_t steps = std::stoll(saved.back().substr(saved.back().find('-') + 1)) + 2;
  for (std::string& argument : args)
    if (argument.starts_with("train.steps")) argument = "train.steps=" + std::to_string(steps);
  const Result resumed = run(mpirun(ranks, args), scratch.folder());
  ASSERT_EQ(resumed.status, 0) << resumed.text();
  EXPECT_NE(resumed.out.find("resumed after step"), std::string::npos) << resumed.text();

  const Result alone =
      run(megalith({"train", folder + "/config.toml", "parallel.tensor_parallel_degree=1",
                    "parallel.sequence_parallel=false", "parallel.pipeline_parallel_degree=1",
                    "parallel.virtual_stages=1", "parallel.active_microbatches=0", "parallel.pipeline_schedule=1f1b",
                    "parallel.sharding_strategy=no_shard", "parallel.sharded_data_parallel_degree=0",
                    "parallel.hierarchical_allgather=false", "memory.activation_checkpointing=none",
                    "memory.offload_optimizer=0", "checkpoint.directory=alone/checkpoints", "checkpoint.every=0",
                    "run.output=alone/" + recipe}),
          scratch.folder());
  ASSERT_EQ(alone.status, 0) << alone.text();
  const std::vector<Step> expected = read_steps(scratch / ("alone/" + recipe));
  EXPECT_EQ(static_cast<int64_t>(expected.size()), steps);
  expect_same_course({read_steps(folder), {}}, {expected, {}});
}

TEST(Recipes, of_clusters_are_rehearsed) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 2000; i++) text += "line " + std::to_string(i * i) + " of a text.\n";
  write_file(scratch / "text.txt", text);
  const Result prepared =
      run(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), scratch.folder());
  ASSERT_EQ(prepared.status, 0) << prepared.text();
  for (const std::string& recipe : cluster_recipes()) {
    rehearse(scratch, recipe);
    fs::remove_all(scratch / "alone/checkpoints");
  }
}

}  // namespace
}  // namespace megalith::e2e
