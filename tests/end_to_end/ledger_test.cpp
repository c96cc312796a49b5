// `megalith data audit` on real runs: killed, resumed on another number of ranks in another layout, on a blend.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// Raw tokens below 257: `samples` samples of 8.
std::string tokens(int64_t samples, int seed) {
  std::string bytes;
  for (int64_t i = 0; i < 8 * samples + 1; i++) bytes += {static_cast<char>((i * 7 + seed) % 251), '\0'};
  return bytes;
}

void expect_words(const Result& result, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(result.out.find(word), std::string::npos) << word << "\n" << result.text();
}

TEST(Ledger, of_a_run_that_is_killed_and_resized) {
  const Scratch scratch;
  write_file(scratch / "wiki-00000.bin", tokens(20, 1));
  write_file(scratch / "wiki-00001.bin", tokens(17, 2));
  write_file(scratch / "code.bin", tokens(11, 3));
  write_file(scratch / "config.toml",
             "[model]\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 257\ncontext = 8\n"
             "[data]\ntrain = [\"wiki-*.bin 0.7\", \"code.bin 0.3\"]\n"
             "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 1\n[optimizer]\ndecay = \"constant\"\n"
             "[train]\nsteps = 100000\n[checkpoint]\nevery = 5\nkeep = 2\n[run]\noutput = \"run\"\n");
  Process process(mpirun(2, {"train", "config.toml"}), scratch.folder());
  const double start = now();
  while (process.out().find("step-00000010") == std::string::npos && process.running()) {
    ASSERT_LT(now() - start, 60);
    sleep_for(0.01);
  }
  process.kill_all();
  const std::string newest = checkpoints_in(scratch / "run/checkpoints").back();
  const int64_t at = std::stoll(newest.substr(5)), end = at + 20;
  const Result more =
      train(scratch.folder(), 4, {fmt::format("train.steps={}", end), "parallel.tensor_parallel_degree=2"});
  expect_words(more,
               {"data.train wiki-*.bin (70 % of samples): raw uint16 tokens, 2 files, documents unknown, 298 tokens",
                "data.train code.bin (30 % of samples): raw uint16 tokens, 1 file"});
  const Result well = succeed(megalith({"data", "audit", "run"}), scratch);
  expect_words(well, {"all well", fmt::format("samples [0, {})", 8 * end), fmt::format("1 to {} on 2 ranks", at),
                      fmt::format("{} to {} on 4 ranks", at + 1, end), "wiki-*.bin: ", "code.bin: "});

  const std::string metrics = read_file(scratch / "run/metrics.jsonl");
  const size_t line = metrics.find(fmt::format("{{\"step\":{},", at + 2)), next = metrics.find('\n', line) + 1;
  write_file(scratch / "run/metrics.jsonl", metrics.substr(0, next) + metrics.substr(line));
  const Result planted = run(megalith({"data", "audit", "run"}), scratch.folder());
  EXPECT_EQ(planted.status, 1);
  expect_words(planted, {fmt::format("VIOLATION: step {} comes again", at + 2)});
  EXPECT_NE(run(megalith({"data", "audit", "absent"}), scratch.folder()).status, 0);
}

// Annealing on other text, then longer sequences, then another seed. Each phase resumes from the checkpoint of the
// phase before in another layout, and has the losses of one rank.
TEST(Ledger, of_data_that_changes_is_the_same_in_every_layout) {
  const Scratch scratch;
  write_file(scratch / "web.bin", tokens(60, 1));
  write_file(scratch / "code.bin", tokens(45, 2));
  write_file(scratch / "books.bin", tokens(80, 3));
  write_file(scratch / "config.toml",
             "[model]\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 257\ncontext = 16\n"
             "[data]\ntrain = [\"web.bin 0.6\", \"code.bin 0.4\"]\n"
             "[batch]\nsequence_length = 8\nglobal_batch_size = 8\nmicrobatch_size = 2\n"
             "[optimizer]\nlearning_rate = 1e-2\ndecay = \"constant\"\n[train]\nsteps = 4\n");
  const std::string annealed = "data.train=[\"web.bin 0.2\", \"code.bin 0.3\", \"books.bin 0.5\"]";
  const std::vector<Args> phases{
      {},
      {"train.steps=8", annealed, "checkpoint.allow_changes=true"},
      {"train.steps=12", annealed, "batch.sequence_length=16", "checkpoint.allow_changes=true"},
      {"train.steps=14", annealed, "batch.sequence_length=16", "train.seed=7", "checkpoint.allow_changes=true"}};
  struct Layout {
    int ranks;
    Args options;
  };
  const Layout alone{1, {}}, sharded{2, {}}, split{2, {"parallel.tensor_parallel_degree=2"}},
      staged{2, {"parallel.pipeline_parallel_degree=2"}},
      all{4, {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"}}, replicas{4, {}};
  std::vector<Step> expected;
  int courses = 0;
  for (const std::vector<Layout>& course : {std::vector{alone, alone, alone, alone},
                                            {sharded, split, staged, all},
                                            {all, replicas, sharded, split},
                                            {replicas, staged, all, alone}}) {
    const std::string folder = fmt::format("run-{}", courses++);
    for (size_t phase = 0; phase < phases.size(); phase++) {
      Args options = phases[phase];
      options.push_back("run.output=" + folder);
      options.insert(options.end(), course[phase].options.begin(), course[phase].options.end());
      train(scratch.folder(), course[phase].ranks, options);
    }
    const std::vector<Step> steps = read_steps(scratch / folder);
    EXPECT_EQ(read_metrics(scratch / folder).back().at("tokens_so_far"), 8 * (8 * 8 + 6 * 16));
    expect_words(succeed(megalith({"data", "audit", folder}), scratch), {"all well"});
    if (expected.empty()) expected = steps;
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); i++) {
      EXPECT_EQ(steps[i].step, expected[i].step);
      EXPECT_NEAR(steps[i].loss, expected[i].loss, 2e-5) << folder << ", step " << steps[i].step;
    }
  }
}

}  // namespace
}  // namespace megalith::e2e
