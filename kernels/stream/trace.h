// The record of one rank in order: ops launched, transfers begun and waited for on all channels, including copies
// between device and host. Every Stream has one, in every world. It is off by default, because a long run would fill
// memory. Transfers are numbered in the order of their beginnings. A group of one rank has no transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/stream/cost.h"
#include "kernels/stream/timekeeper.h"

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
  to_host,  // copies between device and host have no peer
  to_device,
  // Calls that only the flight recorder has (flight_recorder.h).
  split,    // a group is split into several
  connect,  // a group makes its connections
  texts,    // the session brings every rank's text to every rank
  text,     // the session brings rank 0's text to every rank
  // Gathers from some members, or scatters to some.
  all_gather_of,
  reduce_scatter_to,
};
const char* name_of(Transfer transfer);
inline bool is_message(Transfer transfer) { return transfer == Transfer::send || transfer == Transfer::recv; }

constexpr int host_channel = 127;  // the channel of copies between device and host; no communicator has this number

struct TraceEvent {
  enum class Kind : uint8_t { op, begin, wait };

  Kind kind;
  Transfer transfer{};    // begin
  bool together = false;  // of an op: launched with the one before it, in one graph (launch_graph.h)
  int8_t channel = -1;    // of begin: the communicator's number, or host_channel
  int32_t peer = -1;      // of begin: for a message or a broadcast, the other member of the group, or the root; for a
                          // gather or scatter of some members, their number
  int32_t id = -1;        // of begin and wait: number of the transfer
  int32_t part = -1;      // of an op: number of the part of the step to which it belongs, or -1
  int64_t bytes = 0;      // of begin: payload
  const char* op = nullptr;  // of an op: its name, a literal
  Cost cost{};               // an op's

  bool operator==(const TraceEvent&) const = default;
};

enum class TraceLevel : uint8_t { off, transfers, everything };

class Trace {
 public:
  // Clears the trace. Transfers begun before it leave no event when they are waited for.
  void keep(TraceLevel level);
  const std::vector<TraceEvent>& events() const { return events_; }

  void op(const char* name, const Cost& cost) {
    if (level_ == TraceLevel::everything)
      events_.push_back({.kind = TraceEvent::Kind::op, .part = part_, .op = name, .cost = cost});
  }
  // Marks events from number `first` on as ops of one graph.
  void launched_together(std::size_t first) {
    for (std::size_t i = first + 1; i < events_.size(); i++) events_[i].together = true;
  }
  // Sets the part of the step to which later ops belong, by the caller's numbering; -1: no part.
  void set_part(int32_t part) { part_ = part; }
  TraceLevel level() const { return level_; }
  // Returns the ticket for wait().
  int64_t begin(int channel, Transfer transfer, int peer, int64_t bytes);
  void wait(int64_t ticket);
  // Call these when the call that begins a transfer has returned, and when the wait is over.
  void begun() const { end(); }
  void waited() const { end(); }

  // Sets the observer of beginnings and ends; nullptr removes it. Not owned.
  void keep_time(Timekeeper* timekeeper) { timekeeper_ = timekeeper; }
  Timekeeper* timekeeper() const { return timekeeper_; }

 private:
  void end() const {
    if (timekeeper_) timekeeper_->end();
  }

  TraceLevel level_ = TraceLevel::off;
  int32_t part_ = -1;
  Timekeeper* timekeeper_ = nullptr;
  int64_t next_ = 0, first_ = 0;  // tickets of the next transfer and of the first in this trace
  std::vector<TraceEvent> events_;
};

// Returns the transfers begun on one channel, in order.
std::vector<TraceEvent> transfers_on(const std::vector<TraceEvent>& trace, int channel);

}  // namespace megalith
