// A session whose ranks are watched: when one waits for others longer than the time-out, the job ends, and one message
// says who is behind, at which call and on which step; when a rank waits for unusually long, a warning does.
//
// A rank records the calls by which it waits for others in a page that others can read without its help: those of
// this session here, those of communicators because they ask for recorded(). A thread, which calls neither MPI nor
// NCCL, writes the time into the page, looks how long its rank has waited and, where that is long, at the pages of all
// (call_pages.h); what they mean says hang.h. The first that finds that the job cannot go on takes the word and ends
// it; the others, which find the same, keep silent.
//
// Ranks that wait for one that died on their node end the job at once. Who waits for a rank that computes, reads or
// writes between exchanges of texts, outside of steps, is warned and never ended: a disk may take as long as it takes.
// A process that is stopped does not count the time, so a job that is stopped as a whole goes on when it is woken.
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
