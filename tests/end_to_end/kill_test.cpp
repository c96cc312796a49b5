// kill -9, at random moments of training and saving, and the promise that checkpoints make: those that were complete
// stay so, and the run that goes on is the run that was never killed.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "tests/end_to_end/layout.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int64_t keep = 2;
const int64_t all_steps = taken("Kill.steps");

// Small and quick, but with everything that a resume must restore: shuffling over many epochs, dropout, accumulation.
void write_config(const std::string& path) {
  write_file(path, fmt::format(
                       "[model]\nlayers = 4\nhidden = 64\nheads = 4\nvocab = 257\ncontext = 32\ndropout = 0.1\n"
                       "[data]\ntrain = \"{}/tokens.bin\"\n"
                       "[batch]\nsequence_length = 16\nglobal_batch_size = 8\nmicrobatch_size = 2\n"
                       "[optimizer]\nlearning_rate = 1e-3\nwarmup_steps = 5\n"
                       "[train]\nsteps = {}\n[checkpoint]\nevery = 1\nkeep = {}\nsettle = 0\n[run]\noutput = \"run\"\n",
                       reference("tiny"), all_steps, keep));
}

int64_t step_of(const std::string& path) { return std::stoll(fs::path(path).filename().string().substr(5)); }

// The step of the last checkpoint that the program has reported, on a console that was cut off at any byte.
int64_t last_reported(const std::string& out) {
  const std::string word = "  checkpoint ";
  int64_t last = 0;
  for (size_t at = out.find(word); at != std::string::npos; at = out.find(word, at + 1)) {
    if (out.find('\n', at) == std::string::npos) break;
    const size_t line = out.rfind('\n', at) + 1;
    last = std::stoll(out.substr(line + 5));
  }
  return last;
}

enum class Victim { all, one_rank, mpirun };

struct KilledLayout {
  std::string name, words;
  int64_t kills;
};
void PrintTo(const KilledLayout& layout, std::ostream* out) { *out << layout.words; }

class KilledLayouts : public testing::TestWithParam<KilledLayout> {};

TEST_P(KilledLayouts, lose_nothing) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_config(scratch / "config.toml");
  const int64_t wanted_kills = GetParam().kills;
  const Args layout = overrides_of(GetParam().words);
  Args command{"train", "config.toml"}, uninterrupted{"run.output=whole", "checkpoint.every=0"};
  for (Args* args : {&command, &uninterrupted}) args->insert(args->end(), layout.begin(), layout.end());
  train(scratch.folder(), 2, uninterrupted);
  const std::vector<Step> whole = read_steps(scratch / "whole");
  ASSERT_EQ(whole.size(), static_cast<size_t>(all_steps));

  const char* seed = std::getenv("MEGALITH_KILL_SEED");
  std::mt19937 random(seed ? static_cast<unsigned>(std::atoi(seed)) : 1u);
  const auto uniform = [&](double a, double b) { return std::uniform_real_distribution<double>(a, b)(random); };

  int kills = 0, while_saving = 0, while_removing = 0, while_starting = 0, completed = 0;
  const std::string directory = scratch / "run/checkpoints";
  std::vector<std::string> before;  // complete checkpoints, newest first
  const double begin = now();
  while (kills < wanted_kills || !before.empty()) {
    const bool enough = kills >= wanted_kills;
    Process process(mpirun(2, command), scratch.folder());
    // The first and one in five die on their way up; the others once they have saved again, so that the run gets on.
    const bool early = kills == 0 || random() % 5 == 0;
    const int64_t newest = before.empty() ? 0 : step_of(before.front());
    const double start = now();
    while (!enough && process.running()) {
      ASSERT_LT(now() - start, 60) << "no progress";
      if (early || last_reported(process.out()) > newest) break;
      sleep_for(0.002);
    }
    if (!enough) sleep_for(uniform(0, kills == 0 ? 0.05 : early ? 0.3 : 0.08));

    Result result;
    const Victim victim = random() % 6 == 0 ? Victim::one_rank : random() % 6 == 0 ? Victim::mpirun : Victim::all;
    const bool was_running = !enough && process.running();
    const std::vector<pid_t> ranks = was_running ? Process::ranks() : std::vector<pid_t>{};
    if (enough) {
      result = process.wait();
    } else if (!was_running) {
      result = process.wait(0);
    } else if (victim == Victim::all || ranks.empty() || process.out().empty()) {
      // The last: Open MPI 5 may wait for ever for a rank that dies in MPI_Init.
      result = process.kill_all();
    } else {
      ::kill(victim == Victim::mpirun ? process.pid() : ranks[random() % ranks.size()], SIGKILL);
      result = process.wait(30);
      EXPECT_TRUE(Process::ranks_end(30)) << "ranks live on after " << (victim == Victim::mpirun ? "mpirun" : "a rank");
      EXPECT_FALSE(result.timed_out);
    }

    const CheckpointListing listing = CheckpointStore(directory).list();
    if (result.status == 0) {
      // The run came to its end, between kills or because there were enough.
      completed++;
      EXPECT_TRUE(read_steps(scratch / "run") == whole) << "the metrics differ from the uninterrupted run's";
      EXPECT_EQ(read_metrics(scratch / "run").size(), static_cast<size_t>(all_steps));
      expect_same_rank_files(directory + "/" + step_name(all_steps),
                             scratch / "whole/checkpoints/" + step_name(all_steps));
      EXPECT_EQ(listing.complete.size(), static_cast<size_t>(keep));
      EXPECT_TRUE(listing.skipped.empty());
      fs::remove_all(scratch / "run");
      before.clear();
      if (testing::Test::HasFailure()) return;
      continue;
    }
    ASSERT_FALSE(enough) << result.text();
    kills++;
    ASSERT_GE(result.status, 1) << result.text();

    bool partial = false, removed = false;
    if (fs::exists(directory))
      for (const auto& entry : fs::directory_iterator(directory)) {
        partial = partial || entry.path().extension() == ".partial";
        removed = removed || entry.path().extension() == ".removed";
      }
    while_saving += partial;
    while_removing += removed;
    while_starting += result.out.find("step ") == std::string::npos;

    for (const std::string& name : checkpoints_in(directory)) {
      const VerifyReport report = verify_checkpoint(directory + "/" + name);
      EXPECT_TRUE(report.damaged.empty()) << name << ": " << report.damaged.front();
    }
    // Whatever was there or was reported is there, or was followed by `keep` newer ones.
    const int64_t safe = std::max(newest, last_reported(result.out));
    if (safe > 0) {
      ASSERT_FALSE(listing.complete.empty()) << "every checkpoint is gone; there was one of step " << safe;
      EXPECT_GE(step_of(listing.complete.front()), safe);
      EXPECT_GE(static_cast<int64_t>(listing.complete.size()),
                std::min<int64_t>(keep, static_cast<int64_t>(before.size())));
    }
    if (kills % 10 == 0 && !listing.complete.empty()) {
      const Result verified = run(megalith({"checkpoint", "verify", listing.complete.front()}), scratch.folder());
      EXPECT_EQ(verified.status, 0) << verified.text();
    }
    if (testing::Test::HasFailure()) {
      fmt::print("kill {}: {}\n", kills, result.text());
      return;
    }
    before = listing.complete;
  }
  fmt::print(
      "  {} kills in {:.0f} s: {} during a save, {} during a removal, {} before the first step; {} runs completed\n",
      kills, now() - begin, while_saving, while_removing, while_starting, completed);
  EXPECT_GT(while_starting, 0);
  EXPECT_GE(while_saving, wanted_kills / 60) << "among few kills there may be none";
  EXPECT_GE(completed, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Kill, KilledLayouts,
    testing::Values(KilledLayout{"sharded", "", taken("Kill.kills")},
                    KilledLayout{"halves", "pipeline=2 schedule=zb_h1", taken("Kill.kills_of_layouts")},
                    KilledLayout{"halves_in_chunks", "pipeline=2 virtual=2 schedule=zb_h1",
                                 taken("Kill.kills_of_layouts")},
                    KilledLayout{"v", "pipeline=2 virtual=2 schedule=zb_v", taken("Kill.kills_of_layouts")},
                    KilledLayout{"pieces", "tensor=2 pieces=2", taken("Kill.kills_of_layouts")}),
    [](const auto& suite) { return suite.param.name; });

// The others end, within 30 s and not in silence, whichever of them dies.
TEST(Kill, a_rank_that_dies_ends_the_others) {
  SKIP_WITHOUT_REFERENCE();
  for (const size_t victim : {0u, 1u, 2u}) {
    SCOPED_TRACE(victim);
    const Scratch scratch;
    write_config(scratch / "config.toml");
    Process process(
        mpirun(3, {"train", "config.toml", "train.steps=1000000", "train.log_every=1", "checkpoint.every=0"}),
        scratch.folder());
    const double start = now();
    while (process.out().find("\nstep 3/") == std::string::npos) {
      ASSERT_LT(now() - start, 60);
      sleep_for(0.01);
    }
    const std::vector<pid_t> ranks = Process::ranks();
    ASSERT_EQ(ranks.size(), 3u);
    const double killed = now();
    ::kill(ranks[victim], SIGKILL);
    const Result result = process.wait(30);
    EXPECT_FALSE(result.timed_out);
    EXPECT_NE(result.status, 0);
    EXPECT_FALSE(result.err.empty());
    EXPECT_TRUE(Process::ranks_end(30));
    fmt::print("  rank {} of 3: the others ended after {:.2f} s\n", victim, now() - killed);
  }
}

}  // namespace
}  // namespace megalith::e2e
