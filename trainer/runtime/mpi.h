// MPI: the session of this process and communicators over it. Nothing else of ours calls MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/runtime/communicator.h"

namespace megalith {

class ReduceBf16;  // in mpi.cpp: MPI itself knows no bf16

// MPI_Init to MPI_Finalize; one per process, the first object main makes and the last to go, after all communicators.
// Alone, without mpirun, it is a world of one.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_on_this_node() const { return node_size_; }
  int rank_on_this_node() const { return node_rank_; }

  std::unique_ptr<Communicator> world() const;

  // Host values, outside the step: every rank's text, in rank order, on every rank.
  std::vector<std::string> all_gather_text(const std::string& mine) const;
  // Rank 0's text on every rank.
  std::string broadcast_text(const std::string& text) const;

  // Ends every rank of the job now, with this exit status.
  [[noreturn]] void abort(int status) const;

 private:
  int rank_ = 0, size_ = 1, node_rank_ = 0, node_size_ = 1;
  std::shared_ptr<const ReduceBf16> reduce_bf16_;
};

}  // namespace megalith
