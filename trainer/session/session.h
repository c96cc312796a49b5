// The ranks of a job, before and beside the tensors that they exchange: who is there, and the text that they exchange.
// The implementations (mpi_session.h, file_session.h) differ in how ranks find each other.
//
// One per process: made first and the last to go, after all communicators. Calls are collective unless said otherwise:
// all ranks make them, in the same order.
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

  // Host values, outside the step: every rank's text, in rank order, on every rank.
  virtual std::vector<std::string> all_gather_text(const std::string& mine) const = 0;
  // Rank 0's text on every rank.
  virtual std::string broadcast_text(const std::string& text) const = 0;

  // Not collective. Error: ranks that met without MPI, which alone carries tensors in memory of the host.
  virtual void require_mpi() const {}

  // Not collective, from any thread: an Error when a rank of the job is known to have given up. Whoever waits for
  // others outside of this session calls it now and then.
  virtual void check() const {}

  // The ranks as a group in the flight recorder (kernels/stream/flight_recorder.h), into which others' calls go as
  // well; null where nobody watches.
  virtual RecordedGroup* recorded() const { return nullptr; }
  // Collective. The dumps of a hang go there, and its message into the file `log`. The folder is made; all nodes see
  // it. Returns, on rank 0, why an earlier job's folder stands elsewhere or nothing is dumped there; else "".
  virtual std::string dump_into(const std::string& /*folder*/, const std::string& /*log*/) const { return ""; }

  // Not collective, from any thread: ends every rank of the job, with this exit status.
  [[noreturn]] virtual void abort(int status) const = 0;

 protected:
  Session() = default;
  int rank_ = 0, size_ = 1, node_rank_ = 0, node_size_ = 1;
};

}  // namespace megalith
