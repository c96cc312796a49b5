// What launchers say in the environment.
#include "trainer/session/launch.h"

#include <limits>
#include <map>
#include <vector>

#include "tests/message_of.h"

namespace megalith {
namespace {

using Environment = std::map<std::string, std::string>;

Launch launch_in(const Environment& environment) {
  return launch_of([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, ALauncherSaysRankSizeAndJob) {
  EXPECT_EQ(launch_in({{"SLURM_PROCID", "3"},
                       {"SLURM_STEP_NUM_TASKS", "16"},
                       {"SLURM_NTASKS", "32"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"}}),
            (Launch{3, 16, "srun", "4711-0"}));
  EXPECT_EQ(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}), (Launch{0, 2, "torchrun", "job"}));
  EXPECT_EQ(launch_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "x"}}),
            (Launch{1, 2, "torchrun", "x"}));
  EXPECT_EQ(launch_in({{"OMPI_COMM_WORLD_RANK", "7"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_NAMESPACE", "99.1"}}),
            (Launch{7, 8, "mpirun", "99.1"}));
}

TEST(Launch, TheNearerLauncherCounts) {
  Environment environment{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  environment.insert({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}});
  EXPECT_EQ(launch_in(environment).launcher, "mpirun");
  environment.insert({{"RANK", "5"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(launch_in(environment).size, 8);
}

TEST(Launch, WithoutALauncherAProcessIsAlone) {
  const Launch alone{0, 1, "", "job"};
  EXPECT_EQ(launch_in({}), alone);
  EXPECT_EQ(launch_in({{"RANK", "3"}}), alone) << "of how many?";
  EXPECT_EQ(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}), alone)
      << "the batch script itself is no rank";
}

TEST(Launch, WhoHasNoProcessManagerHasNoPeers) {
  const auto peers_in = [](std::vector<const char*> lines) {
    lines.push_back(nullptr);
    return may_have_peers(lines.data());
  };
  EXPECT_FALSE(peers_in({"RANK=3", "SLURM_JOB_ID=1", "SLURM_NTASKS=8", "OMPI_MCA_pml=ob1", "PATH=PMI_RANK"}));
  for (const char* one : {"WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=4", "PMI_RANK=0",
                          "PMI2_SIZE=2", "PMIX_NAMESPACE=1", "FLUX_JOB_ID=f", "PALS_RANKID=0", "ALPS_APP_PE=1"})
    EXPECT_TRUE(peers_in({"HOME=/root", one, "PATH=/bin"})) << one;
}

TEST(Launch, NonsenseIsRefused) {
  for (const char* rank : {"", "-1", "two", "1x", "99999999999"})
    EXPECT_EQ(message_of([&] {
                launch_in({{"RANK", rank}, {"WORLD_SIZE", "2"}});
              }),
              fmt::format("RANK=\"{}\" in the environment is not a number of ranks", rank));
  EXPECT_EQ(message_of([] {
              launch_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
            }),
            "RANK=2 and WORLD_SIZE=2 in the environment: ranks count from 0");
  EXPECT_THROW(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), Error);
}

TEST(Launch, MpirunLeavesItsRanksASecondUnlessTold) {
  Environment environment{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const auto seconds = [&] {
    return seconds_left_by_mpirun([&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(seconds(), 1);
  environment["PRTE_MCA_odls_base_sigkill_timeout"] = "60";
  EXPECT_EQ(seconds(), 60);
  environment["MEGALITH_STARTED_BY_RUN"] = "1";
  EXPECT_EQ(seconds(), std::numeric_limits<double>::infinity());
  environment = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_EQ(seconds(), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace megalith
