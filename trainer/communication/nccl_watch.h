// Watches the NCCL transfers of this rank (nccl.h has the reasons). For builds with CUDA only.
//
// A polling thread asks CUDA for the progress of transfers and notes it in the flight recorder. If the main thread is
// stuck in CUDA, that query may be stuck as well, so a third thread, which makes no CUDA call, watches NCCL's errors
// and the session. No thread holds the mutex during a CUDA call or an NCCL call that communicates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/stream/device.h"
#include "trainer/communication/nccl_library.h"
#include "trainer/session/session.h"

namespace megalith {

struct EnqueuedTransfer {
  device::OwnedEvent begin = device::make_event(), end = device::make_event();
  const char* operation = nullptr;
  RecordedCall call;
  bool has_begun = false, has_ended = false;  // as of the last poll
};

// Tracks the transfers of an NCCL communicator, which end in the order in which they were enqueued.
struct TrackedComm {
  ncclComm_t comm = nullptr;
  std::string channel;
  std::deque<std::shared_ptr<EnqueuedTransfer>> in_flight;
  std::vector<std::shared_ptr<EnqueuedTransfer>> reusable;
};

class NcclWatch {
 public:
  // Polls the selected GPU. `session` and `library` must outlive the watch.
  NcclWatch(const Session& session, const NcclLibrary& library);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(TrackedComm& comm);
  void remove(TrackedComm& comm);

  // The caller records the transfer's `begin`, enqueues the transfer, records `end`, and calls mark_enqueued().
  std::shared_ptr<EnqueuedTransfer> next_transfer(TrackedComm& comm, const char* operation, const RecordedCall& call);
  void mark_enqueued(TrackedComm& comm, std::shared_ptr<EnqueuedTransfer> transfer);

  // Throws the Error that a thread of the watch has found, if any.
  void check();
  bool has_error();

 private:
  using Clock = std::chrono::steady_clock;
  void poll_loop();
  void poll();
  void watch_loop();
  std::string find_error() const;
  void set_error(const std::string& error);

  const Session& session_;
  const NcclLibrary& library_;
  int gpu_;

  std::mutex mutex_;  // guards the members below
  std::vector<TrackedComm*> comms_;
  std::string error_;
  Clock::time_point error_found_;
  bool stop_polling_ = false, stop_watching_ = false;
  std::condition_variable stopped_;

  std::thread polling_, watching_;  // the last members: they use the others
};

}  // namespace megalith
