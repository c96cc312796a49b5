// Reads what the launcher says about this process in its environment.
#pragma once

#include <functional>
#include <string>

namespace megalith {

struct Launch {
  int rank = 0, size = 1;
  std::string launcher;  // "srun"; empty where none has said anything: the process is alone
  std::string job;       // no two jobs of a launcher have the same; "job" where it gives none

  bool operator==(const Launch&) const = default;
};

// torchrun and its like (RANK, WORLD_SIZE), mpirun of Open MPI, or srun. The first of them that is found counts: it may
// have been started by a later one. `variable` is std::getenv, except in tests. Error: variables that make no sense.
Launch launch_of(const std::function<const char*(const char*)>& variable);
Launch launch_of_this_process();

// From here on, and before MPI_Init, mpirun's death does not end this process: who calls it watches its launcher
// itself.
void outlive_launcher();

// Seconds from mpirun's SIGTERM to its SIGKILL: Open MPI's parameter, which ranks see in their environment where it is
// set.
double kill_delay_of_mpirun(const std::function<const char*(const char*)>& variable);
// The same from a Ctrl-C. Infinity: no mpirun started this rank, or `megalith run` keeps such signals from it.
double seconds_left_by_mpirun(const std::function<const char*(const char*)>& variable);

// Returns whether anybody may have started this process beside others: a launcher of the above, or one that MPI knows
// by what its process manager (PMI, PMIx, ALPS, PALS, Flux) puts into the environment, which is lines NAME=VALUE and a
// null pointer.
bool may_have_peers(const char* const* environment);

}  // namespace megalith
