// Schedules of 1 to 8 stages and 1 to 32 microbatches, executed by all stages at once in a simulator that is
// stricter than any communicator: messages between two stages arrive in the order they were sent, forward and backward
// on channels of their own, and must be those that the receiver's action needs; a send ends only when its receive has
// been posted; a receive is posted only by the action that needs it (posting one earlier can only end sends earlier).
// A send is not waited for before its slot is used again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "trainer/schedule/schedule.h"

#include "kernels/system/check.h"

namespace megalith::test {

using Actions = std::vector<Action>;
constexpr auto weight_half = Action::Kind::backward_weight;

inline std::string words(const Action& a) {
  return fmt::format("{}{}{}",
                     a.kind == weight_half             ? 'W'
                     : a.kind == Action::Kind::forward ? 'F'
                                                       : 'B',
                     a.microbatch, a.chunk ? fmt::format(".{}", a.chunk) : "");
}
inline std::string words(const Actions& actions) {
  std::string list;
  for (const Action& a : actions) list += (list.empty() ? "" : " ") + words(a);
  return list;
}
inline std::string words(const PipelineShape& s) {
  return fmt::format("{} p {} v {} m {} A {}", to_string(s.kind), s.stages, s.virtual_stages, s.microbatches,
                     s.active_microbatches);
}

class Simulator {
 public:
  Simulator(const PipelineShape& shape, std::vector<Actions> lists, std::vector<std::vector<int64_t>> slots,
            bool training = true)
      : placement_(shape.placement()),
        p_(static_cast<size_t>(shape.stages)),
        v_(static_cast<size_t>(shape.virtual_stages)),
        m_(shape.microbatches),
        active_(shape.active_microbatches),
        training_(training),
        halves_(training && shape.in_halves()),
        lists_(std::move(lists)),
        slots_(std::move(slots)),
        stages_(p_) {
    for (size_t s = 0; s < p_; s++)
      for (size_t c = 0; c < v_; c++) stages_[s].chunks.push_back({.slots = std::vector<Slot>(size_t(slots_[s][c]))});
  }

  // The first thing that is wrong, or nothing.
  std::string run() {
    for (bool progress = true; progress && finding_.empty();) {
      progress = false;
      for (size_t s = 0; s < p_; s++)
        while (finding_.empty() && advance(s)) progress = true;
    }
    if (finding_.empty()) check_end();
    return finding_;
  }
  // The time of the slowest stage, where forward takes 1, backward 2, and a message 0.
  int64_t makespan() const { return std::max_element(stages_.begin(), stages_.end(), earlier)->time; }
  int64_t most_alive(size_t stage) const { return stages_[stage].most_alive; }
  // Chunks of microbatches between their forward and their backward, or the half of it for weights.
  int64_t most_held() const { return std::ranges::max_element(stages_, {}, &StageState::most_held)->most_held; }

 private:
  struct Message {
    int64_t microbatch;
    size_t model_chunk;  // that it is for
    int64_t time;
  };
  struct Channel {
    std::vector<Message> sent;
    size_t posted = 0;  // receives
  };
  struct Send {
    const Channel* channel;
    size_t index;
    bool ended() const { return channel->posted > index; }
  };
  struct Slot {
    int64_t occupant = -1;
    std::vector<Send> sends;
  };
  struct ChunkState {
    int64_t forwards = 0, backwards = 0, weights = 0;  // the live ones are [backwards, forwards)
    std::vector<Slot> slots;
  };
  struct StageState {
    size_t next = 0;      // action
    bool posted = false;  // its receive
    int64_t time = 0, alive = 0, most_alive = 0, held = 0, most_held = 0;
    std::vector<ChunkState> chunks;
    std::deque<std::pair<int64_t, int64_t>> waiting{};  // microbatch and chunk of halves for weights
    Channel out[4];                                     // forwards and backwards; those of a V's second chunks
  };
  static bool earlier(const StageState& a, const StageState& b) { return a.time < b.time; }

  bool advance(size_t stage) {
    StageState& s = stages_[stage];
    if (s.next == lists_[stage].size()) return false;
    const Action& a = lists_[stage][s.next];
    const bool forward = a.kind == Action::Kind::forward;
    const auto chunk = static_cast<size_t>(placement_.model_chunk(static_cast<int64_t>(stage), a.chunk));
    const size_t last = p_ * v_ - 1, channel = (forward ? 0 : 1) + (placement_.v_shaped && a.chunk == 1 ? 2 : 0);
    const auto turns_after = [&](size_t c) { return placement_.turns_after(static_cast<int64_t>(c)); };
    const bool turned = forward ? turns_after(chunk - 1) : turns_after(chunk);
    const auto wrong = [&](const std::string& what) {
      finding_ = fmt::format("stage {}, action {} ({}): {}", stage, s.next, words(a), what);
      return false;
    };
    ChunkState& state = s.chunks[static_cast<size_t>(a.chunk)];
    if (a.kind == weight_half) {
      if (a.microbatch != state.weights) return wrong("out of order");
      if (state.weights++ == state.backwards) return wrong("before its half for inputs");
      if (s.waiting.front() != std::pair(a.microbatch, a.chunk)) return wrong("not in the order of those for inputs");
      s.waiting.pop_front();
      s.held--;
      s.time++;
      s.next++;
      return true;
    }
    Slot& slot = state.slots[static_cast<size_t>(a.microbatch) % state.slots.size()];
    if (forward && !s.posted) {
      if (training_ && slot.occupant >= 0) return wrong(fmt::format("slot taken by {}", slot.occupant));
      if (!std::all_of(slot.sends.begin(), slot.sends.end(), [](const Send& send) { return send.ended(); }))
        return false;
      slot.sends.clear();
    }

    int64_t start = s.time;
    if (turned) {
      const ChunkState& before = s.chunks[forward ? 0 : 1];
      if ((forward ? before.forwards : before.backwards) <= a.microbatch) return wrong("before the V has turned");
    } else if (chunk != (forward ? 0 : last)) {
      const auto from = placement_.stage_of(static_cast<int64_t>(forward ? chunk - 1 : chunk + 1));
      Channel& in = stages_[static_cast<size_t>(from)].out[channel];
      if (!s.posted) {
        in.posted++;
        s.posted = true;
        return true;  // the sender may go on
      }
      if (in.sent.size() < in.posted) return false;
      const Message& message = in.sent[in.posted - 1];
      if (message.microbatch != a.microbatch || message.model_chunk != chunk)
        return wrong(fmt::format("received microbatch {} for chunk {}", message.microbatch, message.model_chunk));
      start = std::max(start, message.time);
    }
    s.posted = false;
    const bool whole = a.kind == Action::Kind::backward;
    if (!forward && whole == halves_) return wrong(whole ? "a whole backward" : "half a backward");
    s.time = start + (whole ? 2 : 1);
    s.held += forward ? 1 : whole ? -1 : 0;
    if (a.kind == Action::Kind::backward_input) s.waiting.emplace_back(a.microbatch, a.chunk);
    s.most_held = std::max(s.most_held, s.held);
    if (training_ && active_ > 0 && placement_.v_shaped && s.held > 2 * active_)
      return wrong(fmt::format("{} chunks are held", s.held));

    if (a.microbatch != (forward ? state.forwards : state.backwards)) return wrong("out of order");
    if (!forward && state.backwards == state.forwards) return wrong("before its forward");
    (forward ? state.forwards : state.backwards)++;
    if (forward) slot.occupant = a.microbatch;
    if (!forward) slot.occupant = -1;
    if (training_) count_alive(s);
    if (training_ && active_ > 0 && !placement_.v_shaped && s.alive > active_)
      return wrong(fmt::format("{} alive", s.alive));

    if (chunk != (forward ? last : 0) && !(forward ? turns_after(chunk) : turns_after(chunk - 1))) {
      Channel& out = s.out[channel];
      slot.sends.push_back({&out, out.sent.size()});
      out.sent.push_back({a.microbatch, forward ? chunk + 1 : chunk - 1, s.time});
    }
    s.next++;
    return true;
  }

  // On the stage: from the first forward to the last backward, of whichever chunk.
  void count_alive(StageState& s) {
    int64_t begun = 0, ended = m_;
    for (const ChunkState& c : s.chunks) begun = std::max(begun, c.forwards), ended = std::min(ended, c.backwards);
    s.alive = begun - ended;
    s.most_alive = std::max(s.most_alive, s.alive);
  }

  void check_end() {
    for (size_t s = 0; s < p_; s++) {
      if (stages_[s].next < lists_[s].size()) {
        finding_ = fmt::format("deadlock: stage {} waits in {}", s, words(lists_[s][stages_[s].next]));
        return;
      }
      for (const ChunkState& c : stages_[s].chunks)
        if (c.forwards != m_ || c.backwards != (training_ ? m_ : 0) || c.weights != (halves_ ? m_ : 0))
          finding_ = fmt::format("stage {}: {} forwards, {} backwards of {}", s, c.forwards, c.backwards, m_);
      for (const Channel& channel : stages_[s].out)
        if (channel.sent.size() != channel.posted) finding_ = fmt::format("stage {}: mail that nobody reads", s);
    }
  }

  const ChunkPlacement placement_;
  const size_t p_, v_;
  const int64_t m_, active_;
  const bool training_, halves_;
  const std::vector<Actions> lists_;
  const std::vector<std::vector<int64_t>> slots_;
  std::vector<StageState> stages_;
  std::string finding_;
};

inline Simulator simulator(const PipelineShape& shape, const std::vector<Actions>& lists) {
  std::vector<std::vector<int64_t>> slots;
  for (const Actions& list : lists) slots.push_back(live_microbatches(list, shape.virtual_stages));
  return {shape, lists, slots};
}

inline std::string finding(const PipelineShape& shape, const std::vector<Actions>& lists) {
  return simulator(shape, lists).run();
}

inline int64_t makespan(const PipelineShape& shape) {
  Simulator s = simulator(shape, make_schedules(shape));
  EXPECT_EQ(s.run(), "") << words(shape);
  return s.makespan();
}

}  // namespace megalith::test
