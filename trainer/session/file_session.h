// The session of ranks that were started without MPI: they connect through a folder of a file system that all their
// nodes see. MPI is not initialised, so tensors can be transferred only between GPUs (nccl.h).
//
// The folder may be reused, by one job at a time or by several if their launcher gives them different names (launch.h).
// Files of an earlier job are never taken for this one's: each rank writes a random number, JOB.hello.R; rank 0 answers
// with all the numbers that it reads, JOB.start; and a rank is in when its own number is among them. From then on all
// files are in a folder with a random number of rank 0 in its name, the room. Files are written under a temporary name
// and renamed. Ranks that wait look again after a tenth of the time they have waited, at least every second.
//
// A rank that leaves puts a notice into the room. A rank that does not come within the time-out, or that has left with
// an error, is an error on all ranks, which names it. Once all are in, the session around this one reports ranks that
// wait too long (watched_session.h). The last rank to leave removes the room; if all ranks are killed at once, the room
// stays, with a few small files in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/session/launch.h"
#include "trainer/session/session.h"

namespace megalith {

class FileSession : public Session {
 public:
  // Waits for all ranks. Creates `folder` if necessary; a job of one rank does not touch it. Errors: ranks that do not
  // come within the time-out; the folder cannot be written.
  FileSession(const std::string& folder, const Launch& launch, double timeout_seconds);
  ~FileSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  void require_mpi() const override;
  void check() const override;
  [[noreturn]] void abort(int status) const override;

 private:
  class Room;
  std::unique_ptr<Room> room_;  // null if there is only one rank
};

}  // namespace megalith
