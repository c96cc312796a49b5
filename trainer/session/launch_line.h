// The command line with which `megalith run` starts ranks: of mpirun, or of srun in an allocation of Slurm.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace megalith {

struct RanksWanted {
  int ranks = 0;                // 0: as many tasks as the allocation of Slurm has
  std::string hosts_file = {};  // for mpirun; empty: this machine
  std::string hosts = {};       // the text of that file
};

// What the command line depends on. `variable` is std::getenv, except in tests.
struct Surroundings {
  std::function<const char*(const char*)> variable;
  std::string mpirun, program;  // program: this one's path on the ranks' hosts
  std::string srun_kinds = {};  // the output of `srun --mpi=list`; empty: outside an allocation of Slurm
  std::string folder;           // the working folder
  bool root = false;
  int64_t shared_memory = 0;  // free bytes in /dev/shm
};

struct LaunchLine {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  // variables to add; those that the user has set are kept
};

// `command`: the words of a subcommand; `takes_config`: it accepts keys of the configuration. Error: ranks that cannot
// be started this way, with the remedy.
LaunchLine launch_line(const RanksWanted& wanted, const std::vector<std::string>& command, bool takes_config,
                       const Surroundings& around);

// Set in the environment of such ranks: a signal that asks them to end arrives as SIGUSR1.
constexpr const char* started_by_run = "MEGALITH_STARTED_BY_RUN";

// Bytes of a host's shared memory that Open MPI needs for each rank; it refuses to use less.
constexpr int64_t shared_memory_a_rank = (4 << 20) + (1 << 16);

}  // namespace megalith
