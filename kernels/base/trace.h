// A Trace is what one rank did, in order: ops launched, transfers begun and transfers waited for, on all its channels,
// copies between device and host among them. Every Stream carries one, in every world; it is off until asked for,
// because a long run would fill memory.
//
// Transfers have numbers, in the order in which they began. Transfers of a group of one rank do not appear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/cost.h"
#include "kernels/base/timekeeper.h"

namespace megalith {

enum class Transfer : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  send,
  recv,
  barrier,
  to_host,    // a copy from the device; these two have no peer
  to_device,  // a copy from the host
};
const char* name_of(Transfer transfer);

constexpr int host_channel = 127;  // of copies between device and host; no communicator has this number

struct TraceEvent {
  enum class Kind : uint8_t { op, begin, wait };

  Kind kind;
  Transfer transfer{};       // begin
  bool together = false;     // op: launched with the one before it, in one graph (launch_graph.h)
  int8_t channel = -1;       // begin: the number that the communicator was made with, or host_channel
  int32_t peer = -1;         // begin, of a message or a broadcast: the other member of the group, or the root
  int32_t id = -1;           // begin, wait: number of the transfer
  int64_t bytes = 0;         // begin: payload
  const char* op = nullptr;  // op: its name, a literal
  Cost cost{};               // op

  bool operator==(const TraceEvent&) const = default;
};

enum class TraceLevel : uint8_t { off, transfers, everything };

class Trace {
 public:
  // Starts afresh. Transfers that began before are not followed: waiting for them leaves no event.
  void keep(TraceLevel level);
  const std::vector<TraceEvent>& events() const { return events_; }

  void op(const char* name, const Cost& cost) {
    if (level_ == TraceLevel::everything) events_.push_back({.kind = TraceEvent::Kind::op, .op = name, .cost = cost});
  }
  // The events from number `first` on were ops of one graph.
  void launched_together(std::size_t first) {
    for (std::size_t i = first + 1; i < events_.size(); i++) events_[i].together = true;
  }
  TraceLevel level() const { return level_; }
  // What to call wait() with.
  int64_t begin(int channel, Transfer transfer, int peer, int64_t bytes);
  void wait(int64_t ticket);
  // The call that begins a transfer has returned; the wait is over.
  void begun() const { end(); }
  void waited() const { end(); }

  // Is told what of the stream begins and ends from now on; null: nobody. It must outlive its time here.
  void keep_time(Timekeeper* timekeeper) { timekeeper_ = timekeeper; }
  Timekeeper* timekeeper() const { return timekeeper_; }

 private:
  void end() const {
    if (timekeeper_) timekeeper_->end();
  }

  TraceLevel level_ = TraceLevel::off;
  Timekeeper* timekeeper_ = nullptr;
  int64_t next_ = 0, first_ = 0;  // tickets: of the next transfer, and of the first in this trace
  std::vector<TraceEvent> events_;
};

// The transfers begun on one channel, in order.
std::vector<TraceEvent> transfers_on(const std::vector<TraceEvent>& trace, int channel);

}  // namespace megalith
