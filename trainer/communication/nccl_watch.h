// What is under way in NCCL on this rank, and who watches it (nccl.h says why). For builds with CUDA only.
//
// The host's thread reports transfers. A second thread asks CUDA for their progress, which goes into the ring of calls;
// where the host's thread is stuck in CUDA, that query may be stuck as well. So a third thread, which makes no CUDA
// call, watches NCCL's errors and the session. How long a transfer lasts is watched by whoever watches the ring. What
// the threads share is under the mutex, which nobody holds during a CUDA call or an NCCL call that communicates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/device.h"
#include "trainer/communication/nccl_library.h"
#include "trainer/session/session.h"

namespace megalith {

// A call in the ring of this rank, by its ticket; none: 0.
struct KeptCall {
  CallRing* ring = nullptr;
  int64_t ticket = 0;
  void waits() const {
    if (ticket > 0) ring->waits(ticket);
  }
  void ended() const {
    if (ticket > 0) ring->ended(ticket);
  }
};

// A transfer that was enqueued.
struct Flight {
  device::OwnedEvent begun = device::make_event(), over = device::make_event();
  const char* operation = nullptr;
  KeptCall told;
  bool seen = false;   // to have begun
  bool ended = false;  // as was seen
};

// An NCCL communicator and the transfers it was given, which end in the order in which they were enqueued.
struct Line {
  ncclComm_t comm = nullptr;
  std::string channel;
  std::deque<std::shared_ptr<Flight>> flights;
  std::vector<std::shared_ptr<Flight>> landed;  // for reuse
};

class NcclWatch {
 public:
  // The GPU is the one selected. `session` and `library` outlive it.
  NcclWatch(const Session& session, const NcclLibrary& library);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(Line& line);
  void remove(Line& line);

  // A flight for a transfer whose `begun` is still to be recorded; then, with `over` recorded, it is under way.
  std::shared_ptr<Flight> next_flight(Line& line, const char* operation, const KeptCall& told);
  void departed(Line& line, std::shared_ptr<Flight> flight);

  // Error: what was found.
  void check();
  bool found_one();

 private:
  using Clock = std::chrono::steady_clock;
  void ask_on();
  void ask();
  void watch_on();
  std::string look() const;
  void report(const std::string& error);

  const Session& session_;
  const NcclLibrary& library_;
  int gpu_;

  std::mutex mutex_;  // of all below
  std::vector<Line*> lines_;
  std::string error_;
  Clock::time_point found_;  // the error
  bool stop_asking_ = false, stop_watching_ = false;
  std::condition_variable stopped_;

  std::thread asking_, watching_;  // the last members: they use the others
};

}  // namespace megalith
