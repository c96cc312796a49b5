// What a rank remembers of the calls in which it waited for others: the last of them, in a page of memory that others
// may read while this process runs, is stopped or has died (trainer/session/watched_session.h). Keeping it costs a few
// stores a call and no look at a clock: times are what a thread has last written into the page, every tenth of a
// second.
//
// A group is a set of ranks that call together. Its members give it the same id and number its collectives from 1 in
// the order in which they begin them, and messages from 1 for each peer and direction; so what two ranks remember can
// be held against each other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/trace.h"

namespace megalith {

enum class Call : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  send,
  recv,
  barrier,
  split,    // of a group into several
  connect,  // a group makes its connections
  texts,    // of the session: every rank's to every rank
  text,     // of the session: rank 0's to every rank
};
const char* name_of(Call call);
inline Call call_of(Transfer transfer) { return static_cast<Call>(transfer); }
inline bool is_message(Call call) { return call == Call::send || call == Call::recv; }

// In shared memory, which begins as zeros. Times are in hundredths of a second on this rank's own watch, which begins
// at 1 and stands still while the process is stopped; 0: not yet.
struct CallPage {
  struct Group {
    std::atomic<uint64_t> id;  // 0: the place is free
    std::array<char, 28> name;
    int32_t index, size;         // of this rank in it; ranks
    std::atomic<int64_t> begun;  // collectives
  };
  struct alignas(64) Slot {
    std::atomic<int64_t> ticket;  // of the call, from 1; 0: none, or it is being written
    std::atomic<uint64_t> group;
    std::atomic<int64_t> number, bytes, step;
    std::atomic<int32_t> peer;  // index in the group; -1: none
    std::atomic<Call> call;
    std::atomic<uint32_t> begun, waits, ended;  // waits: since when somebody waits for it without a break
  };
  static constexpr uint64_t magic_number = 0x32736c6c61636d67;
  static constexpr size_t num_groups = 64, num_slots = 4096;
  enum class Ending : int32_t { none, in_order, gave_up };

  uint64_t magic, job;  // a number that only the ranks of one job have
  int32_t rank, size, pid;
  std::atomic<Ending> ending;
  uint64_t process_start, pid_namespace;  // with pid: which process this is, whoever has its number later
  std::array<char, 128> machine;          // as machine_id()
  std::atomic<uint32_t> now;
  std::atomic<int64_t> step, begun;  // under way, from 1; calls
  int32_t seen_state;                // of a copy that was made for others to read: how the process was then
  std::array<Group, num_groups> groups;
  std::array<Slot, num_slots> slots;
};
static_assert(sizeof(CallPage::Slot) == 64 && std::atomic<Call>::is_always_lock_free);

// Writes a page: all calls but ended() by one thread.
class CallRing {
 public:
  explicit CallRing(CallPage& page) : page_(page) {}

  CallPage& page() { return page_; }
  void begin_step(int64_t step) { page_.step.store(step, std::memory_order_relaxed); }

  // A call begins, and the rank is in it: the ticket for what follows.
  int64_t begin(uint64_t group, Call call, int64_t number, int64_t bytes, int peer) {
    const int64_t ticket = page_.begun.load(std::memory_order_relaxed) + 1;
    CallPage::Slot& slot = slot_of(ticket);
    constexpr auto relaxed = std::memory_order_relaxed;
    slot.ticket.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // who reads what follows reads no earlier ticket
    const uint32_t now = page_.now.load(relaxed);
    slot.group.store(group, relaxed);
    slot.number.store(number, relaxed);
    slot.bytes.store(bytes, relaxed);
    slot.step.store(page_.step.load(relaxed), relaxed);
    slot.peer.store(peer, relaxed);
    slot.call.store(call, relaxed);
    slot.begun.store(now, relaxed);
    slot.waits.store(now, relaxed);
    slot.ended.store(0, relaxed);
    slot.ticket.store(ticket, std::memory_order_release);
    page_.begun.store(ticket, std::memory_order_release);
    return ticket;
  }
  // The rank has come out of the call that begins it, and does other things; waits for it; it is over.
  void under_way(int64_t ticket) { set(ticket, &CallPage::Slot::waits, 0); }
  void waits(int64_t ticket) { set(ticket, &CallPage::Slot::waits, page_.now.load(std::memory_order_relaxed)); }
  void ended(int64_t ticket) { set(ticket, &CallPage::Slot::ended, page_.now.load(std::memory_order_relaxed)); }

  // The call has failed, and its error is about to spread: who watches may know better why, and not return.
  void failed(int64_t ticket) {
    if (on_failure_) on_failure_();
    ended(ticket);
  }
  void on_failure(std::function<void()> f) { on_failure_ = std::move(f); }

  // An id for a group of all ranks; theirs are the same when they ask as often.
  uint64_t next_id();

 private:
  CallPage::Slot& slot_of(int64_t ticket) { return page_.slots[static_cast<size_t>(ticket) % CallPage::num_slots]; }
  void set(int64_t ticket, std::atomic<uint32_t> CallPage::Slot::*what, uint32_t value) {
    CallPage::Slot& slot = slot_of(ticket);
    if (slot.ticket.load(std::memory_order_relaxed) == ticket) (slot.*what).store(value, std::memory_order_relaxed);
  }

  CallPage& page_;
  std::function<void()> on_failure_;
  uint64_t ids_ = 0;
};

// A group in the page for as long as this lives, and the numbers of its calls.
class CallGroup {
 public:
  CallGroup(CallRing& ring, uint64_t id, const std::string& name, int index, int size);
  ~CallGroup();
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  CallRing& ring() const { return ring_; }
  // `bytes`: the same on all members, or -1 where they differ. peer: the index of a message's other end.
  int64_t begin(Call call, int64_t bytes, int peer = -1) {
    if (!is_message(call)) {
      place_.begun.store(++calls_, std::memory_order_relaxed);
      return ring_.begin(id_, call, calls_, bytes, peer);
    }
    if (messages_.empty()) messages_.resize(2 * static_cast<size_t>(size_));
    return ring_.begin(id_, call, ++messages_[2 * static_cast<size_t>(peer) + (call == Call::send)], bytes, peer);
  }
  // The id of the group that this rank comes into when this one is split.
  uint64_t id_of_part(int color);

 private:
  CallRing& ring_;
  uint64_t id_;
  CallPage::Group& place_;
  int size_;
  int64_t calls_ = 0, splits_ = 0;
  std::vector<int64_t> messages_;
};

// Around a call that a rank is in until it is over.
class InCall {
 public:
  InCall(CallGroup* group, Call call, int64_t bytes = -1)
      : ring_(group ? &group->ring() : nullptr), ticket_(group ? group->begin(call, bytes) : 0) {}
  ~InCall() {
    if (!ring_) return;
    std::uncaught_exceptions() > outside_ ? ring_->failed(ticket_) : ring_->ended(ticket_);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  CallRing* ring_;
  int64_t ticket_;
  int outside_ = std::uncaught_exceptions();
};

}  // namespace megalith
