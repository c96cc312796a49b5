#include "trainer/communication/nccl_watch.h"

#include <algorithm>
#include <chrono>

#include "kernels/system/check.h"
#include "trainer/machine/terminal.h"

namespace megalith {

namespace {

constexpr auto interval = std::chrono::milliseconds(100);
constexpr int looks_per_session_check = 20;  // a check of the session may read files
constexpr double grace = 5;                  // seconds for the main thread to find the error by itself

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

NcclWatch::NcclWatch(const Session& session, const NcclLibrary& library)
    : session_(session),
      library_(library),
      gpu_(device::properties().index),
      polling_([this] { poll_loop(); }),
      watching_([this] { watch_loop(); }) {}

NcclWatch::~NcclWatch() {
  const auto end = [this](bool& stop, std::thread& thread) {
    {
      const std::lock_guard lock(mutex_);
      stop = true;
    }
    stopped_.notify_all();
    thread.join();
  };
  end(stop_polling_, polling_);  // may be stuck in CUDA, so it ends while it is still watched
  end(stop_watching_, watching_);
}

void NcclWatch::add(TrackedComm& comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(&comm);
}

void NcclWatch::remove(TrackedComm& comm) {
  const std::lock_guard lock(mutex_);
  std::erase(comms_, &comm);
  for (const std::shared_ptr<EnqueuedTransfer>& transfer : comm.in_flight) transfer->call.ended();
}

std::shared_ptr<EnqueuedTransfer> NcclWatch::next_transfer(TrackedComm& comm, const char* operation,
                                                           const RecordedCall& call) {
  std::shared_ptr<EnqueuedTransfer> transfer;
  {
    const std::lock_guard lock(mutex_);
    if (!comm.reusable.empty()) {
      transfer = std::move(comm.reusable.back());
      comm.reusable.pop_back();
    }
  }
  if (!transfer) transfer = std::make_shared<EnqueuedTransfer>();
  transfer->operation = operation;
  transfer->call = call;
  transfer->has_begun = transfer->has_ended = false;
  return transfer;
}

void NcclWatch::mark_enqueued(TrackedComm& comm, std::shared_ptr<EnqueuedTransfer> transfer) {
  const std::lock_guard lock(mutex_);
  comm.in_flight.push_back(std::move(transfer));
}

// Updates the progress of the transfers in flight and removes those that have ended.
void NcclWatch::poll() {
  std::vector<std::deque<std::shared_ptr<EnqueuedTransfer>>> by_comm;
  {
    const std::lock_guard lock(mutex_);
    for (const TrackedComm* comm : comms_) by_comm.push_back(comm->in_flight);
  }
  bool progress = false;
  for (const auto& in_flight : by_comm)
    for (const std::shared_ptr<EnqueuedTransfer>& transfer : in_flight) {
      const bool ended = device::passed(transfer->end.get()), begun = ended || device::passed(transfer->begin.get());
      const std::lock_guard lock(mutex_);
      if (begun && !transfer->has_begun) transfer->call.waits();
      transfer->has_begun = begun;
      if (!ended) break;
      transfer->call.ended();
      transfer->has_ended = progress = true;
    }
  // While any transfer ends, the others are not stuck: their time-out begins anew.
  for (const auto& in_flight : by_comm)
    for (const std::shared_ptr<EnqueuedTransfer>& transfer : in_flight)
      if (progress && transfer->has_begun && !transfer->has_ended) transfer->call.waits();
  by_comm.clear();
  const std::lock_guard lock(mutex_);
  for (TrackedComm* comm : comms_)
    while (!comm->in_flight.empty() && comm->in_flight.front()->has_ended) {
      // A transfer that a Pending still refers to is not reused.
      if (comm->in_flight.front().use_count() == 1) comm->reusable.push_back(comm->in_flight.front());
      comm->in_flight.pop_front();
    }
}

void NcclWatch::check() {
  const std::lock_guard lock(mutex_);
  CHECK(error_.empty(), "{}", error_);
}

bool NcclWatch::has_error() {
  const std::lock_guard lock(mutex_);
  return !error_.empty();
}

std::string NcclWatch::find_error() const {
  for (const TrackedComm* comm : comms_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.async_error(comm->comm, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
      return fmt::format("{}: {}: NCCL reports: {}: {}; has another rank or a link died?", comm->channel,
                         comm->in_flight.empty() ? "between transfers" : comm->in_flight.front()->operation,
                         library_.error_string(asked != ncclSuccess ? asked : state), library_.last_error(comm->comm));
  }
  return "";
}

void NcclWatch::set_error(const std::string& error) {
  if (error.empty() || !error_.empty()) return;
  error_ = error;
  error_found_ = Clock::now();
}

void NcclWatch::poll_loop() {
  std::unique_lock lock(mutex_, std::defer_lock);
  try {
    device::select(gpu_);
    for (;;) {
      lock.lock();
      if (stopped_.wait_for(lock, interval, [this] { return stop_polling_; })) return;
      lock.unlock();
      poll();
    }
  } catch (const std::exception& e) {
    const std::lock_guard again(mutex_);
    set_error(e.what());
  }
}

void NcclWatch::watch_loop() {
  std::unique_lock lock(mutex_);
  for (int64_t looks = 0; !stopped_.wait_for(lock, interval, [this] { return stop_watching_; }); looks++) {
    if (!error_.empty()) {
      if (seconds(Clock::now() - error_found_) < grace) continue;
      say_error(fmt::format("rank {}: {}", session_.rank(), error_));
      session_.abort(1);
    }
    std::string error;
    try {
      error = find_error();
      if (error.empty() && looks % looks_per_session_check == 0) {
        lock.unlock();
        session_.check();
        lock.lock();
      }
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (!lock.owns_lock()) lock.lock();
    set_error(error);
  }
}

}  // namespace megalith
