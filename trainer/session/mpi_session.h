// The session of ranks that mpirun, or srun with its PMI, has started.
#pragma once

#include "trainer/session/session.h"

namespace megalith {

// The library's own line about itself. May be asked for without a session.
std::string mpi_version();

// MPI_Init to MPI_Finalize. A start that takes longer than this many seconds ends the process with a message: MPI_Init
// waits for ever for a rank that does not come.
class MpiSession : public Session {
 public:
  MpiSession(int* argc, char*** argv, double timeout);
  ~MpiSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  [[noreturn]] void abort(int status) const override;
};

}  // namespace megalith
