// A session whose ranks are watched: when one waits for others longer than the time-out, the job ends, and one message
// says who is behind, at which call and on which step; when a rank waits for unusually long, a warning does.
//
// Each rank records the calls by which it waits for others in the page of a flight recorder
// (kernels/stream/flight_recorder.h): those of this session here, those of communicators because they ask for
// recorded(). The watchdog is a thread of each rank that calls neither MPI nor NCCL. It writes the time into the page
// and looks how long its rank has waited. By these rules it ends the job, and who is to blame matters to none of them:
// - a rank of this node has died, and this one waits;
// - this rank has waited in a step for longer than the time-out. A process that is stopped does not count the time, so
//   a job that is stopped as a whole goes on when it is woken;
// - it has waited so long outside of steps, and no rank is at work, nor is one unseen. As long as one computes, reads
// or
//   writes between exchanges of texts, the others warn and wait: a disk may take as long as it takes.
// Then it has ranks of other nodes write their dumps (recorder_pages.h), asks the doctor what all dumps say
// (trainer/doctor/diagnosis.h), prints that and leaves the dumps for `megalith doctor`. The first to come so far takes
// the word and ends the job; the others keep silent.
#pragma once

#include <memory>

#include "trainer/session/session.h"

namespace megalith {

class WatchedSession : public Session {
 public:
  // Collective. `timeout` in seconds, > 0.
  WatchedSession(std::unique_ptr<Session> session, double timeout);
  ~WatchedSession() override;

  std::vector<std::string> all_gather_text(const std::string& mine) const override;
  std::string broadcast_text(const std::string& text) const override;
  void require_mpi() const override { session_->require_mpi(); }
  void check() const override { session_->check(); }
  RecordedGroup* recorded() const override;
  // Collective.
  std::string dump_into(const std::string& folder, const std::string& log) const override;
  [[noreturn]] void abort(int status) const override;

 private:
  class Watchdog;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace megalith
