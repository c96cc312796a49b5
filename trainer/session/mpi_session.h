// The session of ranks that were started by mpirun, or by srun with its PMI.
#pragma once

#include "trainer/session/session.h"

namespace megalith {

// Returns the library's description of itself. Works without a session.
std::string mpi_version();

// Calls MPI_Init and MPI_Finalize. A start that takes longer than this many seconds ends the process with a message:
// MPI_Init waits forever for a rank that does not come.
class MpiSession : public Session {
 public:
  MpiSession(int* argc, char*** argv, double timeout);
  ~MpiSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  [[noreturn]] void abort(int status) const override;
};

}  // namespace megalith
