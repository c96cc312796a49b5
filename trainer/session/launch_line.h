// The command line by which `megalith run` starts ranks: of mpirun, or of srun where Slurm has allotted the machines.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace megalith {

struct RanksWanted {
  int ranks = 0;                // 0: as many tasks as the allocation of Slurm has
  std::string hosts_file = {};  // of mpirun; empty: this machine
  std::string hosts = {};       // the text of that file
};

// The command line depends on these. `variable` is std::getenv, except in tests.
struct Surroundings {
  std::function<const char*(const char*)> variable;
  std::string mpirun, program;  // the program is this one, as the ranks' hosts have it
  std::string srun_kinds = {};  // what `srun --mpi=list` says; empty: Slurm has allotted nothing
  std::string folder;           // the working folder
  bool root = false;
  int64_t shared_memory = 0;  // bytes that are free in /dev/shm
};

struct LaunchLine {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  // what is added; what the user has set stays
};

// `command`: the words of a subcommand; `takes_config`: it can be given keys of the configuration. Error: what cannot
// be started so, with the remedy.
LaunchLine launch_line(const RanksWanted& wanted, const std::vector<std::string>& command, bool takes_config,
                       const Surroundings& around);

// This is in the environment of ranks that were started so: a signal that asks for the end comes to them as SIGUSR1.
constexpr const char* started_by_run = "MEGALITH_STARTED_BY_RUN";

// Bytes of a host's shared memory that each rank takes through Open MPI, which refuses to use less.
constexpr int64_t shared_memory_a_rank = (4 << 20) + (1 << 16);

}  // namespace megalith
