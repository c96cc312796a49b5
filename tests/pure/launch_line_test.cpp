// `megalith run` starts what is wanted with what is there.
#include "trainer/session/launch_line.h"

#include <map>

#include "tests/message_of.h"

namespace megalith {
namespace {

using Environment = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

Surroundings in(const Environment& environment = {}) {
  return {.variable = [=](const char* name) -> const char* {
            const auto found = environment.find(name);
            return found == environment.end() ? nullptr : found->second.c_str();
          },
          .mpirun = "mpirun",
          .program = "/p/megalith",
          .folder = "/work",
          .shared_memory = int64_t{1} << 40};
}

TEST(LaunchLine, ByMpirunAsItIsNeededByOpenMpi4And5) {
  const LaunchLine line = launch_line({.ranks = 3}, {"train", "a b.toml", "--shrink", "3"}, true, in());
  EXPECT_EQ(line.words,
            (Words{"mpirun", "-n", "3", "-x", started_by_run, "/p/megalith", "train", "a b.toml", "--shrink", "3"}));
  EXPECT_EQ(line.environment, (Environment{{"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                           {"PRTE_MCA_hwloc_default_binding_policy", "none"},
                                           {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                           {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
                                           {started_by_run, "1"}}));
  Surroundings root = in({{"PRTE_MCA_rmaps_default_mapping_policy", "core"}});
  root.root = true;
  const Environment added = launch_line({.ranks = 3}, {"train"}, true, root).environment;
  EXPECT_EQ(added.count("OMPI_ALLOW_RUN_AS_ROOT") + added.count("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), 2u);
  EXPECT_EQ(added.count("PRTE_MCA_rmaps_default_mapping_policy"), 0u) << "it is the user's";
}

TEST(LaunchLine, SharedMemoryThatDoesNotSufficeLiesElsewhere) {
  Surroundings container = in();
  container.shared_memory = 64 << 20;
  for (const auto& [ranks, elsewhere] : {std::pair{2, false}, {15, false}, {16, true}}) {
    const Environment added = launch_line({.ranks = ranks}, {"train"}, true, container).environment;
    EXPECT_EQ(added.count("OMPI_MCA_btl_vader_backing_directory"), elsewhere) << ranks;
    EXPECT_EQ(added.count("OMPI_MCA_btl_sm_backing_directory"), elsewhere) << ranks;
  }
}

TEST(LaunchLine, HostsGetEquallyManyRanks) {
  const std::string hosts = "# ours\na slots=4\nb:2\n\nc  # the new one\na\n";
  const LaunchLine line = launch_line({6, "hosts", hosts}, {"train"}, true, in());
  EXPECT_EQ(line.words,
            (Words{"mpirun", "-n", "6", "--hostfile", "hosts", "-x", started_by_run, "/p/megalith", "train"}));
  EXPECT_EQ(line.environment.at("OMPI_MCA_rmaps_base_mapping_policy"), "ppr:2:node");
  EXPECT_EQ(line.environment.at("PRTE_MCA_rmaps_default_mapping_policy"), "ppr:2:node:oversubscribe");
  EXPECT_EQ(message_of([&] {
              launch_line({8, "hosts", hosts}, {"train"}, true, in());
            }),
            "-n 8 is not a multiple of the 3 hosts in hosts, which get equally many ranks; give -n 9");
  EXPECT_EQ(message_of([&] {
              launch_line({8, "hosts", "# none\n"}, {"train"}, true, in());
            }),
            "hosts has no host; write one a line");
}

TEST(LaunchLine, BySrunInsideAnAllocation) {
  Surroundings slurm = in({{"SLURM_JOB_ID", "17"}, {"SLURM_CPUS_PER_TASK", "12"}});
  slurm.srun_kinds = "MPI plugin types are...\n\tnone\n\tpmix\n";
  const LaunchLine line = launch_line({}, {"train", "c.toml"}, true, slurm);
  EXPECT_EQ(line.words, (Words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "/p/megalith", "train", "c.toml"}));
  EXPECT_EQ(line.environment, (Environment{{"SRUN_CPUS_PER_TASK", "12"}}));
  slurm.srun_kinds = "none";
  EXPECT_EQ(launch_line({.ranks = 4}, {"train", "c.toml"}, true, slurm).words,
            (Words{"srun", "--ntasks=4", "--mpi=none", "--kill-on-bad-exit=1", "/p/megalith", "train", "c.toml",
                   "--communication.rendezvous=/work/rendezvous"}));
  EXPECT_EQ(launch_line({}, {"checkpoint"}, false, slurm).words.back(), "checkpoint");
  EXPECT_NE(message_of([&] {
              launch_line({4, "hosts", "a\n"}, {"train"}, true, slurm);
            }).find("leave out --hosts"),
            std::string::npos);
}

TEST(LaunchLine, WithoutANumberOrByRanksIsRefused) {
  EXPECT_NE(message_of([] { launch_line({}, {"train"}, true, in()); }).find("megalith run -n 2 COMMAND"),
            std::string::npos);
  const Surroundings rank = in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(message_of([&] { launch_line({.ranks = 2}, {"train"}, true, rank); }),
            "megalith run starts the ranks by itself, but mpirun has started it on 2; leave out mpirun");
}

}  // namespace
}  // namespace megalith
