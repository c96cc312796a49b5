// A session whose ranks are watched. When one waits for others longer than the time-out, the job ends, and one message
// names the ranks that are behind, the call and the step. When a rank waits unusually long, a warning does.
//
// Each rank records the calls in which it waits for others in the page of a flight recorder
// (kernels/stream/flight_recorder.h): calls of this session are recorded here, those of communicators through
// recorded(). The watchdog is a thread of each rank that calls neither MPI nor NCCL. It writes the time into the page
// and checks how long its rank has waited. By these rules, which do not depend on who is to blame, it ends the job:
// - a rank of this node has died, and this one waits;
// - this rank has waited in a step for longer than the time-out. A stopped process does not count the time, so a job
//   that is stopped as a whole continues when it is woken;
// - it has waited that long outside of steps, and no rank is working or unseen. As long as one computes, reads or
//   writes between exchanges of texts, the others only warn and wait: a disk may take any time.
// Then it makes ranks of other nodes write their dumps (recorder_pages.h), lets the doctor diagnose all dumps
// (trainer/doctor/diagnosis.h), prints the result and leaves the dumps for `megalith doctor`. The first rank to get
// this far reports and ends the job; the others are silent.
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
