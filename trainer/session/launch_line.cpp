#include "trainer/session/launch_line.h"

#include <set>
#include <sstream>

#include "kernels/system/check.h"
#include "trainer/session/launch.h"

namespace megalith {

namespace {

// Returns how many different hosts the file names.
int num_hosts(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string name;
    std::istringstream(line.substr(0, line.find('#'))) >> name;
    name = name.substr(0, name.find(':'));
    if (!name.empty()) names.insert(name);
  }
  return static_cast<int>(names.size());
}

// Each is a process; a larger number is a typing error, which would fill the machine before any message.
constexpr int most_ranks_here = 4096;

int ranks_on_each_host(const RanksWanted& wanted) {
  const int hosts = num_hosts(wanted.hosts);
  CHECK(hosts > 0, "{} has no host; write one a line", wanted.hosts_file);
  const int below = wanted.ranks / hosts * hosts;
  CHECK(below == wanted.ranks,
        "-n {} is not a multiple of the {} hosts in {}, which get equally many ranks; give -n {}", wanted.ranks, hosts,
        wanted.hosts_file, below + hosts);
  return wanted.ranks / hosts;
}

LaunchLine srun_line(const RanksWanted& wanted, const std::vector<std::string>& command, bool takes_config,
                     const Surroundings& around) {
  CHECK(wanted.hosts_file.empty(),
        "inside an allocation of Slurm the hosts are those of the allocation; leave out --hosts {}", wanted.hosts_file);
  const bool pmix = around.srun_kinds.find("pmix") != std::string::npos;
  LaunchLine line;
  line.words = {"srun"};
  if (wanted.ranks > 0) line.words.push_back(fmt::format("--ntasks={}", wanted.ranks));
  // A rank that fails ends the job at once; the others would wait for it.
  line.words.insert(line.words.end(), {pmix ? "--mpi=pmix" : "--mpi=none", "--kill-on-bad-exit=1", around.program});
  line.words.insert(line.words.end(), command.begin(), command.end());
  // Without PMIx the ranks connect through a folder that all nodes see.
  if (!pmix && takes_config)
    line.words.push_back(fmt::format("--communication.rendezvous={}/rendezvous", around.folder));
  // Since 22.05 Slurm no longer passes this from sbatch to srun.
  if (const char* cores = around.variable("SLURM_CPUS_PER_TASK")) line.environment["SRUN_CPUS_PER_TASK"] = cores;
  return line;
}

LaunchLine mpirun_line(const RanksWanted& wanted, const std::vector<std::string>& command, const Surroundings& around) {
  CHECK(wanted.ranks > 0,
        "the number of ranks is missing: megalith run -n 2 COMMAND; it is known only inside an allocation of Slurm");
  CHECK(!wanted.hosts_file.empty() || wanted.ranks <= most_ranks_here,
        "-n {}: more than {} ranks on one machine; name more machines with --hosts", wanted.ranks, most_ranks_here);
  LaunchLine line;
  line.words = {around.mpirun, "-n", std::to_string(wanted.ranks)};
  // Open MPI 4 and 5 have different names for each. Ranks divide the cores of their machine themselves.
  line.environment = {{"OMPI_MCA_hwloc_base_binding_policy", "none"},
                      {"PRTE_MCA_hwloc_default_binding_policy", "none"},
                      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}};
  if (around.root) {
    line.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
    line.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  }
  if (!wanted.hosts_file.empty()) {
    const std::string policy = fmt::format("ppr:{}:node", ranks_on_each_host(wanted));
    line.words.insert(line.words.end(), {"--hostfile", wanted.hosts_file});
    line.environment["OMPI_MCA_rmaps_base_mapping_policy"] = policy;
    line.environment["PRTE_MCA_rmaps_default_mapping_policy"] = policy + ":oversubscribe";
  } else if (around.shared_memory < wanted.ranks * shared_memory_a_rank) {
    // A container has 64 MiB of it by default; files elsewhere work as well.
    line.environment["OMPI_MCA_btl_vader_backing_directory"] = "/tmp";
    line.environment["OMPI_MCA_btl_sm_backing_directory"] = "/tmp";
  }
  line.words.insert(line.words.end(), {"-x", started_by_run, around.program});
  line.words.insert(line.words.end(), command.begin(), command.end());
  line.environment[started_by_run] = "1";
  return line;
}

}  // namespace

LaunchLine launch_line(const RanksWanted& wanted, const std::vector<std::string>& command, bool takes_config,
                       const Surroundings& around) {
  const Launch launch = launch_of(around.variable);
  CHECK(launch.size == 1 && launch.launcher != "mpirun",
        "megalith run starts the ranks by itself, but {} has started it on {}; leave out {}", launch.launcher,
        launch.size, launch.launcher);
  LaunchLine line = around.srun_kinds.empty() ? mpirun_line(wanted, command, around)
                                              : srun_line(wanted, command, takes_config, around);
  std::erase_if(line.environment, [&](const auto& added) { return around.variable(added.first.c_str()) != nullptr; });
  return line;
}

}  // namespace megalith
