// The flight recorder, as NCCL and PyTorch call it: the last calls in which a rank waited for others, in a page of
// memory that other processes may read while this one runs, is stopped or has died (trainer/session/watched_session.h).
// Recording a call takes a few stores and reads no clock: its times are what the watchdog wrote into the page last,
// every tenth of a second.
//
// A group is a set of ranks that call together. Its members give it the same id and number its collectives from 1 in
// the order in which they begin them, and messages from 1 for each peer and direction, so that the records of two ranks
// can be compared.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "kernels/stream/trace.h"

namespace megalith {

enum class RankState : int32_t {
  unseen,   // its state is unknown
  running,  //
  stopped,  // by a signal or a debugger
  dead,     // the process no longer exists
  left,     // ended in order
  gave_up,  // ended with an error of its own
};

// The page is in shared memory, which begins as zeros. Times are in hundredths of a second on this rank's own clock,
// which begins at 1 and stops while the process is stopped; 0: not yet.
struct RecorderPage {
  struct Group {
    std::atomic<uint64_t> id;  // 0: the place is free
    std::array<char, 28> name;
    int32_t index, size;         // of this rank in the group; number of ranks
    std::atomic<int64_t> begun;  // collectives begun
  };
  struct alignas(64) Slot {
    std::atomic<int64_t> ticket;  // number of the call, from 1; 0: unused, or being written
    std::atomic<uint64_t> group;
    std::atomic<int64_t> number, bytes, step;
    std::atomic<int32_t> peer;  // index in the group; -1: not a message
    std::atomic<Transfer> call;
    std::atomic<uint32_t> begun, waits, ended;  // waits: since when a thread has waited for it without a break
  };
  static constexpr uint64_t magic_number = 0x33736c6c61636d67;
  static constexpr size_t num_groups = 64, num_slots = 4096;

  uint64_t magic, job;  // job: a number that only the ranks of one job have
  int32_t rank, size, pid;
  std::atomic<RankState> ending;          // left or gave_up, once the rank reports it
  uint64_t process_start, pid_namespace;  // with pid: identify the process even if another gets its number later
  std::array<char, 128> machine;          // as returned by machine_id()
  std::atomic<uint32_t> now;
  std::atomic<int64_t> step, begun;  // the current step, from 1; calls begun
  RankState seen_state;              // of a dump: the state of the process at its time
  std::array<Group, num_groups> groups;
  std::array<Slot, num_slots> slots;

  static int64_t oldest(int64_t last) { return std::max<int64_t>(1, last - static_cast<int64_t>(num_slots) + 1); }
  Slot& slot(int64_t ticket) { return slots[static_cast<size_t>(ticket) % num_slots]; }
  const Slot& slot(int64_t ticket) const { return slots[static_cast<size_t>(ticket) % num_slots]; }
};
static_assert(sizeof(RecorderPage::Slot) == 64 && std::atomic<Transfer>::is_always_lock_free);

// Writes a page: one thread begins calls, and any thread may report their progress.
class FlightRecorder {
 public:
  // A call in the page. A call that is not recorded has no recorder.
  class Call {
   public:
    Call() = default;
    Call(FlightRecorder& recorder, int64_t ticket) : recorder_(&recorder), ticket_(ticket) {}
    explicit operator bool() const { return recorder_ != nullptr; }

    void under_way() const { set(&RecorderPage::Slot::waits, false); }  // the rank does other things meanwhile
    void waits() const { set(&RecorderPage::Slot::waits, true); }
    void ended() const { set(&RecorderPage::Slot::ended, true); }
    // Call this before an error propagates: the watchdog may know its cause better, and then does not return.
    void failed() const {
      if (recorder_ && recorder_->on_failure_) recorder_->on_failure_();
      ended();
    }

   private:
    void set(std::atomic<uint32_t> RecorderPage::Slot::*what, bool now) const {
      if (!recorder_) return;
      RecorderPage& page = recorder_->page_;
      RecorderPage::Slot& slot = page.slot(ticket_);
      if (slot.ticket.load(std::memory_order_relaxed) != ticket_) return;  // a later call has replaced it
      (slot.*what).store(now ? page.now.load(std::memory_order_relaxed) : 0, std::memory_order_relaxed);
    }

    FlightRecorder* recorder_ = nullptr;
    int64_t ticket_ = 0;
  };

  explicit FlightRecorder(RecorderPage& page) : page_(page) {}

  RecorderPage& page() { return page_; }
  void begin_step(int64_t step) { page_.step.store(step, std::memory_order_relaxed); }

  // Records that a call begins and that the rank is in it.
  Call begin(uint64_t group, Transfer call, int64_t number, int64_t bytes, int peer) {
    const int64_t ticket = page_.begun.load(std::memory_order_relaxed) + 1;
    RecorderPage::Slot& slot = page_.slot(ticket);
    constexpr auto relaxed = std::memory_order_relaxed;
    slot.ticket.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // readers of the stores below see no earlier ticket
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
    return {*this, ticket};
  }

  void on_failure(std::function<void()> f) { on_failure_ = std::move(f); }

  // Returns an id for a group of all ranks, equal on all ranks that have called it equally often.
  uint64_t next_id();

 private:
  RecorderPage& page_;
  std::function<void()> on_failure_;
  uint64_t ids_ = 0;
};

using RecordedCall = FlightRecorder::Call;

// A group in the page for the lifetime of this object, and the numbers of its calls.
class RecordedGroup {
 public:
  RecordedGroup(FlightRecorder& recorder, uint64_t id, const std::string& name, int index, int size);
  ~RecordedGroup();
  RecordedGroup(const RecordedGroup&) = delete;
  RecordedGroup& operator=(const RecordedGroup&) = delete;

  FlightRecorder& recorder() const { return recorder_; }
  // `bytes`: the same on all members, or -1 where they differ. peer: the index of a message's other end.
  RecordedCall begin(Transfer call, int64_t bytes, int peer = -1) {
    if (!is_message(call)) {
      place_.begun.store(++calls_, std::memory_order_relaxed);
      return recorder_.begin(id_, call, calls_, bytes, peer);
    }
    if (messages_.empty()) messages_.resize(2 * static_cast<size_t>(size_));
    const size_t direction = 2 * static_cast<size_t>(peer) + (call == Transfer::send);
    return recorder_.begin(id_, call, ++messages_[direction], bytes, peer);
  }
  // Returns the id of the new group of this rank when this one is split.
  uint64_t id_of_part(int color);

 private:
  FlightRecorder& recorder_;
  uint64_t id_;
  RecorderPage::Group& place_;
  int size_;
  int64_t calls_ = 0, splits_ = 0;
  std::vector<int64_t> messages_;
};

// Marks a call that the rank is in until the end of the scope.
class InCall {
 public:
  InCall(RecordedGroup* group, Transfer call) : call_(group ? group->begin(call, -1) : RecordedCall()) {}
  ~InCall() { std::uncaught_exceptions() > outside_ ? call_.failed() : call_.ended(); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  RecordedCall call_;
  int outside_ = std::uncaught_exceptions();
};

}  // namespace megalith
