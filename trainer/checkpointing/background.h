// Runs work on a thread of low priority, so that it takes little time from the threads that compute.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

namespace megalith {

class Background {
 public:
  // Starts the work, which must not throw.
  explicit Background(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          ::setpriority(PRIO_PROCESS, 0, niceness);  // on Linux: of this thread, in the disk's queue too
          work();
          done_ = true;
        }) {}
  ~Background() { wait(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  bool done() const { return done_; }
  // Returns when the caller can read the results of the work.
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr int niceness = 5;  // a third of a computing thread's share of a busy processor
  std::atomic<bool> done_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace megalith
