// The ranks of a job apart from the tensors that they exchange: who is there, and the texts that they exchange. The
// implementations (mpi_session.h, file_session.h) differ in how ranks find each other.
//
// One per process, created first and destroyed last, after all communicators. Calls are collective unless stated
// otherwise: all ranks make them, in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/stream/flight_recorder.h"

namespace megalith {

class Session {
 public:
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_on_this_node() const { return node_size_; }
  int rank_on_this_node() const { return node_rank_; }

  // For values on the host, outside the step: returns every rank's text, in rank order, on every rank.
  virtual std::vector<std::string> all_gather_text(const std::string& mine) const = 0;
  // Returns rank 0's text on every rank.
  virtual std::string broadcast_text(const std::string& text) const = 0;

  // Not collective. Error: the ranks were started without MPI, which is required for tensors in host memory.
  virtual void require_mpi() const {}

  // Not collective, from any thread: throws Error if a rank of the job is known to have given up. Code that waits for
  // other ranks outside of this session calls it repeatedly.
  virtual void check() const {}

  // Returns the ranks as a group in the flight recorder (kernels/stream/flight_recorder.h), which communicators also
  // record into; null if the session is not watched.
  virtual RecordedGroup* recorded() const { return nullptr; }
  // Collective. Sets where to write the dumps of a hang, and its message, the file `log`. The folder is created; all
  // nodes see it. Returns, on rank 0, why an earlier job's folder was moved or why no dumps can be written; else "".
  virtual std::string dump_into(const std::string& /*folder*/, const std::string& /*log*/) const { return ""; }

  // Not collective, from any thread: ends every rank of the job with this exit status.
  [[noreturn]] virtual void abort(int status) const = 0;

 protected:
  Session() = default;
  int rank_ = 0, size_ = 1, node_rank_ = 0, node_size_ = 1;
};

}  // namespace megalith
