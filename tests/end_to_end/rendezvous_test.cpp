// The program started once for each rank, without MPI: the ranks meet in a folder. MPI is made useless, so that it is
// known not to be asked for. Training of several ranks takes GPUs then; here it is refused.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

const std::string no_mpi = "export OMPI_MCA_pml=none_of_that_name";

class Rendezvous : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_REFERENCE();
    write_reference_config(scratch / "config.toml", reference("tiny"), "");
  }

  Args train(const Args& more = {}) const {
    Args args{"train", "config.toml", "train.steps=1", "communication.rendezvous=" + meeting,
              "communication.timeout=20"};
    args.insert(args.end(), more.begin(), more.end());
    return megalith(args);
  }
  // In the order of `commands`: rank 0, 1, ... of `size`.
  std::vector<Result> start(const std::vector<Args>& commands, size_t size) const {
    std::vector<std::unique_ptr<Process>> ranks;
    for (size_t r = 0; r < commands.size(); r++)
      ranks.push_back(std::make_unique<Process>(commands[r], scratch.folder(),
                                                fmt::format("{}; export RANK={} WORLD_SIZE={}", no_mpi, r, size)));
    std::vector<Result> results;
    for (const auto& rank : ranks) results.push_back(rank->wait(60));
    return results;
  }
  // All end with status 1; rank 0 says all of the words, and says it once.
  void expect_refusal(const std::vector<Result>& ranks, const Args& words) const {
    for (const Result& r : ranks) {
      EXPECT_EQ(r.status, 1) << r.text();
      EXPECT_LT(r.seconds, 10) << r.text();
    }
    for (const std::string& word : words)
      EXPECT_NE(ranks[0].err.find(word), std::string::npos) << "\"" << word << "\" is missing: " << ranks[0].text();
    for (size_t r = 1; r < ranks.size(); r++) EXPECT_EQ(ranks[r].err, "") << ranks[r].text();
    EXPECT_TRUE(fs::is_empty(meeting)) << "something is left behind";
    EXPECT_FALSE(fs::exists(scratch / "run")) << "something was written";
  }

  const Scratch scratch;
  const std::string meeting = scratch / "meeting";
};

TEST_F(Rendezvous, one_rank_trains_without_mpi) {
  const Args other{"train", "config.toml", "train.steps=1", "run.output=other"};
  EXPECT_NE(run(mpirun(1, other), scratch.folder(), 60, no_mpi).status, 0) << "MPI is of use after all";
  const Result alone = run(megalith(other), scratch.folder(), 60, no_mpi);
  EXPECT_EQ(alone.status, 0) << alone.text();
  const std::vector<Result> ranks = start({train()}, 1);
  EXPECT_EQ(ranks[0].status, 0) << ranks[0].text();
  EXPECT_EQ(read_steps(scratch / "run").size(), 1u);
  EXPECT_FALSE(fs::exists(meeting)) << "nobody to meet";
}

TEST_F(Rendezvous, several_ranks_need_gpus) {
  for (int job = 0; job < 2; job++)
    expect_refusal(start({train(), train(), train()}, 3), {"the 3 ranks of this job connected through " + meeting,
                                                           "communication.backend = nccl", "start the job with MPI"});
}

TEST_F(Rendezvous, verify_needs_mpi) {
  const Args verify = megalith({"verify", "config.toml", "communication.rendezvous=" + meeting, "--against",
                                "memory.activation_checkpointing=each"});
  expect_refusal(start({verify, verify}, 2), {"the 2 ranks of this job connected through "});
}

TEST_F(Rendezvous, ranks_that_were_started_with_different_things_are_named) {
  expect_refusal(start({train(), train({"optimizer.learning_rate=0.125"}), train()}, 3),
                 {"rank 1: was started differently from rank 0", "optimizer.learning_rate: 0.125; on rank 0: "});
  Args other = train();
  other[2] = "absent.toml";
  expect_refusal(start({train(), other}, 2), {"rank 1: cannot read configuration absent.toml"});
}

TEST_F(Rendezvous, a_rank_that_does_not_come_is_named) {
  const Args args = train({"communication.timeout=1"});
  for (const Result& r : start({args, args}, 3)) {
    EXPECT_EQ(r.status, 1) << r.text();
    EXPECT_NE(r.err.find("megalith: rank 2 of 3 has not connected through " + meeting + " within 1 s"),
              std::string::npos)
        << r.text();
  }
  EXPECT_TRUE(fs::is_empty(meeting));
}

// Not under mpirun, or under that of another MPI: each process would train a model of its own into one folder.
TEST_F(Rendezvous, processes_that_do_not_know_of_each_other_are_refused) {
  const Result r = run(megalith({"train", "config.toml"}), scratch.folder(), 60,
                       "export SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=5 SLURM_STEP_ID=0");
  EXPECT_EQ(r.status, 1) << r.text();
  EXPECT_NE(r.err.find("srun has started 4 processes, but in MPI each is a single rank"), std::string::npos)
      << r.text();
  EXPECT_NE(r.err.find("communication.rendezvous = FOLDER"), std::string::npos) << r.text();
  EXPECT_FALSE(fs::exists(scratch / "run"));
}

}  // namespace
}  // namespace megalith::e2e
