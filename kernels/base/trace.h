// A Trace is what one rank did, in order: ops launched, transfers begun and transfers waited for, on all its channels.
// Every Stream carries one, in every world; it is off until asked for, because a long run would fill memory.
//
// Transfers have numbers, in the order in which they began. Transfers of a group of one rank do not appear.
#pragma once

#include <cstdint>
#include <vector>

namespace megalith {

enum class Transfer : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, send, recv, barrier };
const char* name_of(Transfer transfer);

struct TraceEvent {
  enum class Kind : uint8_t { op, begin, wait };

  Kind kind;
  Transfer transfer{};       // begin
  int8_t channel = -1;       // begin: the number that the communicator was made with
  int32_t peer = -1;         // begin, of a message or a broadcast: the other member of the group, or the root
  int32_t id = -1;           // begin, wait: number of the transfer
  int64_t bytes = 0;         // begin: payload
  const char* op = nullptr;  // op: its name, a literal

  bool operator==(const TraceEvent&) const = default;
};

enum class TraceLevel : uint8_t { off, transfers, everything };

class Trace {
 public:
  // Starts afresh. Transfers that began before are not followed: waiting for them leaves no event.
  void keep(TraceLevel level);
  const std::vector<TraceEvent>& events() const { return events_; }

  void op(const char* name) {
    if (level_ == TraceLevel::everything) events_.push_back({.kind = TraceEvent::Kind::op, .op = name});
  }
  // What to call wait() with.
  int64_t begin(int channel, Transfer transfer, int peer, int64_t bytes);
  void wait(int64_t ticket);

 private:
  TraceLevel level_ = TraceLevel::off;
  int64_t next_ = 0, first_ = 0;  // tickets: of the next transfer, and of the first in this trace
  std::vector<TraceEvent> events_;
};

// The transfers begun on one channel, in order.
std::vector<TraceEvent> transfers_on(const std::vector<TraceEvent>& trace, int channel);

// How many ops were launched while transfer `id` was under way: between its begin and its wait, or the end of the trace
// where nobody waits. That is the work that hides it. The trace must be of everything.
int64_t ops_under(const std::vector<TraceEvent>& trace, int32_t id);

}  // namespace megalith
