// A transfer in flight, between ranks (trainer/communication) or between device and host (Stream). Its tensors must
// stay untouched and allocated until wait(), which orders the stream after the transfer without blocking the host.
// Waiting twice is allowed. The destructor waits, except while an exception propagates: the peer may never come. The
// first wait is an event of the trace.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "kernels/stream/flight_recorder.h"
#include "kernels/stream/trace.h"

struct CUevent_st;  // of the CUDA runtime

namespace megalith {

class Pending {
 public:
  Pending() = default;
  // `over`: on a GPU stream, the event that ends the transfer; it lives until wait().
  explicit Pending(std::function<void()> wait, CUevent_st* over = nullptr)
      : state_{.wait = std::move(wait), .over = over} {}
  Pending(Pending&& other) noexcept : state_(std::exchange(other.state_, {})) {}
  Pending& operator=(Pending&& other) {
    wait();
    state_ = std::exchange(other.state_, {});
    return *this;
  }
  ~Pending() {
    if (std::uncaught_exceptions() == 0) wait();
  }
  // Writes the beginning into the trace and calls begin(); the Pending that it returns writes the end.
  template <class Begin>
  static Pending traced(Trace& trace, int channel, Transfer transfer, int peer, int64_t bytes, Begin begin) {
    const int64_t ticket = trace.begin(channel, transfer, peer, bytes);
    Pending pending = begin();
    trace.begun();
    pending.state_.trace = &trace;
    pending.state_.ticket = ticket;
    return pending;
  }

  // Records the wait and its end with this call.
  void record(const RecordedCall& call) { state_.call = call; }

  void wait() {
    const State ending = std::exchange(state_, {});
    if (ending.trace) ending.trace->wait(ending.ticket);
    ending.call.waits();
    try {
      if (ending.wait) ending.wait();
    } catch (...) {
      ending.call.failed();
      throw;
    }
    ending.call.ended();
    if (ending.trace) ending.trace->waited();
  }
  // False for a default-constructed Pending, and after wait().
  bool under_way() const { return state_.wait || state_.over || state_.trace || state_.call; }
  // Null if there is no event, and after wait().
  CUevent_st* over() const { return state_.over; }

 private:
  struct State {
    std::function<void()> wait;
    CUevent_st* over = nullptr;
    Trace* trace = nullptr;
    int64_t ticket = 0;
    RecordedCall call = {};
  };
  State state_;
};

}  // namespace megalith
