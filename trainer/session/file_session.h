// The session of ranks that were started without MPI: they meet in a folder of a file system that all their nodes see.
// No MPI is initialised, so tensors travel between GPUs only (nccl.h).
//
// The folder may be used again and again, by one job at a time or by several whose launcher tells them apart
// (launch.h). What an earlier job has left is never taken for this one's: each rank writes a number drawn at random,
// JOB.hello.R; rank 0 answers with all that it reads, JOB.start; and a rank comes in when its own number is in there.
// From then on everything lies in a folder with a random number of rank 0 in its name, the room. Files are written
// aside and renamed. Ranks that wait look again after a tenth of the time they have waited, at least every second.
//
// A rank that leaves puts a notice into the room. One that does not come within the time-out, or that has left with an
// error, is an error on all of them, which names it; once all are in, who waits too long for whom is for the session
// around this one to say (watched_session.h). The last to leave removes the room; ranks that are
// killed all at once leave theirs behind, with a few small files in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/session/launch.h"
#include "trainer/session/session.h"

namespace megalith {

class FileSession : public Session {
 public:
  // Waits for all ranks. `folder` is made if it is not there; a job of one rank does not touch it. Errors: ranks that
  // do not come within the time-out; the folder cannot be written.
  FileSession(const std::string& folder, const Launch& launch, double timeout_seconds);
  ~FileSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  void require_mpi() const override;
  void check() const override;
  [[noreturn]] void abort(int status) const override;

 private:
  class Room;
  std::unique_ptr<Room> room_;  // none for a rank that is alone
};

}  // namespace megalith
