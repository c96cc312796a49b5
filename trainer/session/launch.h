// What the launcher says of this process in its environment.
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

// torchrun and its like (RANK, WORLD_SIZE), mpirun of Open MPI, or srun. The first that speaks counts: one that was
// started by another is the nearer one. `variable` is std::getenv, except in tests. Error: what is said makes no sense.
Launch launch_of(const std::function<const char*(const char*)>& variable);
Launch launch_of_this_process();

}  // namespace megalith
