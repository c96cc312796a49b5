// Reads the launcher's description of this process from the environment.
#pragma once

#include <functional>
#include <string>

namespace megalith {

struct Launch {
  int rank = 0, size = 1;
  std::string launcher;  // "srun"; empty without a launcher: the process is a single rank
  std::string job;       // different for any two jobs of a launcher; "job" if it does not set one

  bool operator==(const Launch&) const = default;
};

// Recognises torchrun and similar launchers (RANK, WORLD_SIZE), Open MPI's mpirun, and srun. The first one found
// counts: it may have been started by a later one. `variable` is std::getenv, except in tests. Error: variables that
// contradict each other.
Launch launch_of(const std::function<const char*(const char*)>& variable);
Launch launch_of_this_process();

// After this call, which must come before MPI_Init, mpirun's death does not end this process: the caller must watch its
// launcher.
void outlive_launcher();

// Returns seconds from mpirun's SIGTERM to its SIGKILL: Open MPI's parameter, which ranks see in their environment if
// it is set.
double kill_delay_of_mpirun(const std::function<const char*(const char*)>& variable);
// As above from a Ctrl-C. Infinity: mpirun did not start this rank, or `megalith run` keeps such signals from it.
double seconds_left_by_mpirun(const std::function<const char*(const char*)>& variable);

// Returns whether this process may be one of several ranks: it has one of the launchers above, or one that MPI
// recognises by variables of its process manager (PMI, PMIx, ALPS, PALS, Flux). `environment` is lines NAME=VALUE and a
// null pointer.
bool may_have_peers(const char* const* environment);

}  // namespace megalith
