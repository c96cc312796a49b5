// MPI: the session of this process and communicators over it. Nothing else of ours calls MPI.
#pragma once

#include "trainer/runtime/session.h"

namespace megalith {

class ReduceBf16;  // in mpi.cpp: MPI itself knows no bf16

// MPI_Init to MPI_Finalize. Alone, without mpirun, it is a world of one.
class MpiSession : public Session {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  std::unique_ptr<Communicator> world() const override;
  [[noreturn]] void abort(int status) const override;

 private:
  std::shared_ptr<const ReduceBf16> reduce_bf16_;
};

}  // namespace megalith
