// Schedules of 1 to 8 stages and 1 to 32 microbatches, executed by all stages at once in a simulator that is
// stricter than any communicator: messages between two stages arrive in the order they were sent, forward and backward
// on channels of their own, and must be those that the receiver's action needs; a send ends only when its receive has
// been posted; a receive is posted only by the action that needs it (posting one earlier can only end sends earlier).
// A send is not waited for before its slot is used again.

#include "trainer/parallel/schedule.h"

#include <algorithm>
#include <deque>
#include <set>

#include "tests/long_tests.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

using Actions = std::vector<Action>;
using enum PipelineSchedule;
constexpr auto weight_half = Action::Kind::backward_weight;

std::string words(const Action& a) {
  return fmt::format("{}{}{}", a.kind == weight_half ? 'W' : a.kind == Action::Kind::forward ? 'F' : 'B', a.microbatch,
                     a.chunk ? fmt::format(".{}", a.chunk) : "");
}
std::string words(const Actions& actions) {
  std::string list;
  for (const Action& a : actions) list += (list.empty() ? "" : " ") + words(a);
  return list;
}
std::string words(const PipelineShape& s) {
  return fmt::format("{} p {} v {} m {} A {}", to_string(s.kind), s.stages, s.virtual_stages, s.microbatches,
                     s.active_microbatches);
}

class Simulator {
 public:
  Simulator(const PipelineShape& shape, std::vector<Actions> lists, std::vector<std::vector<int64_t>> slots,
            bool training = true)
      : p_(static_cast<size_t>(shape.stages)),
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
    Channel out[2];  // forward to the next stage, backward to the one before
  };
  static bool earlier(const StageState& a, const StageState& b) { return a.time < b.time; }

  bool advance(size_t stage) {
    StageState& s = stages_[stage];
    if (s.next == lists_[stage].size()) return false;
    const Action& a = lists_[stage][s.next];
    const bool forward = a.kind == Action::Kind::forward;
    const size_t chunk = static_cast<size_t>(a.chunk) * p_ + stage, last = p_ * v_ - 1;
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
    if (chunk != (forward ? 0 : last)) {
      Channel& in = stages_[(stage + (forward ? p_ - 1 : 1)) % p_].out[forward ? 0 : 1];
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

    if (a.microbatch != (forward ? state.forwards : state.backwards)) return wrong("out of order");
    if (!forward && state.backwards == state.forwards) return wrong("before its forward");
    (forward ? state.forwards : state.backwards)++;
    if (forward) slot.occupant = a.microbatch;
    if (!forward) slot.occupant = -1;
    if (training_) count_alive(s);
    if (training_ && active_ > 0 && s.alive > active_) return wrong(fmt::format("{} alive", s.alive));

    if (chunk != (forward ? last : 0)) {
      Channel& out = s.out[forward ? 0 : 1];
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

  const size_t p_, v_;
  const int64_t m_, active_;
  const bool training_, halves_;
  const std::vector<Actions> lists_;
  const std::vector<std::vector<int64_t>> slots_;
  std::vector<StageState> stages_;
  std::string finding_;
};

std::vector<Actions> all_stages(const PipelineShape& shape) {
  std::vector<Actions> lists;
  for (int64_t s = 0; s < shape.stages; s++) lists.push_back(make_schedule(shape, s));
  return lists;
}

Simulator simulator(const PipelineShape& shape, const std::vector<Actions>& lists) {
  std::vector<std::vector<int64_t>> slots;
  for (const Actions& list : lists) slots.push_back(live_microbatches(list, shape.virtual_stages));
  return {shape, lists, slots};
}

std::string finding(const PipelineShape& shape, const std::vector<Actions>& lists) {
  return simulator(shape, lists).run();
}

int64_t makespan(const PipelineShape& shape) {
  Simulator s = simulator(shape, all_stages(shape));
  EXPECT_EQ(s.run(), "") << words(shape);
  return s.makespan();
}

// v > 1 takes p > 1.
void for_each_size(const std::function<void(int64_t p, int64_t v, int64_t m)>& f) {
  for (int64_t p = 1; p <= 8; p++)
    for (int64_t v = 1; v <= (p > 1 ? 4 : 1); v++)
      for (int64_t m = 1; m <= 32; m++)
        if (m <= taken("Schedule.NumbersOfMicrobatches") || m % p == 1 || m == 32) f(p, v, m);
}

TEST(Schedule, CompleteInOrderFreeOfDeadlockAndWithinItsBounds) {
  int64_t proven = 0;
  for_each_size([&](int64_t p, int64_t v, int64_t m) {
    for (PipelineSchedule kind : {one_f_one_b, gpipe})
      for (int64_t active : std::set<int64_t>{0, 1, 2, 3, p, p + 1, m}) {
        const PipelineShape shape{p, v, m, active, kind};
        Simulator s = simulator(shape, all_stages(shape));
        ASSERT_EQ(s.run(), "") << words(shape);
        for (int64_t stage = 0; stage < p; stage++) {
          const int64_t bound = kind == gpipe ? m : v == 1 ? p - stage : 2 * p;
          ASSERT_LE(s.most_alive(static_cast<size_t>(stage)), std::min(bound, m)) << words(shape) << ' ' << stage;
        }
        proven++;
      }
  });
  EXPECT_GT(proven, taken("Schedule.NumbersOfMicrobatches") == 32 ? 10000 : 4000);
}

// Up to 16 stages, and from no microbatch to four for each.
void for_each_size_in_halves(const std::function<void(int64_t p, int64_t v, int64_t m)>& f) {
  for (int64_t p : {2, 3, 4, 5, 8, 11, 16})
    for (int64_t v : {1, 2, 3, 4})
      for (int64_t m : std::set<int64_t>{0, 1, p - 1, p + 1, 2 * p, 4 * p})
        if (p < 11 || v < 3) f(p, v, m);
}

TEST(Schedule, HalvesAreCompleteInOrderAndHoldNoMoreThanWholeBackwards) {
  for_each_size_in_halves([](int64_t p, int64_t v, int64_t m) {
    for (int64_t active : std::set<int64_t>{0, 1, p}) {
      const PipelineShape halves{p, v, m, active, zb_h1}, whole{p, v, m, active};
      Simulator s = simulator(halves, all_stages(halves)), w = simulator(whole, all_stages(whole));
      ASSERT_EQ(s.run(), "") << words(halves);
      ASSERT_EQ(w.run(), "") << words(whole);
      ASSERT_LE(s.most_held(), w.most_held()) << words(halves);
      ASSERT_LE(s.makespan(), w.makespan()) << words(halves);
      for (int64_t stage : std::set<int64_t>{0, p / 2, p - 1}) {
        Actions order = make_schedule(halves, stage);
        std::erase_if(order, [](const Action& a) { return a.kind == weight_half; });
        for (Action& a : order)
          if (a.kind == Action::Kind::backward_input) a.kind = Action::Kind::backward;
        ASSERT_EQ(order, make_schedule(whole, stage)) << "forwards and halves for inputs are those of 1F1B";
      }
    }
  });
}

// A third of 1F1B's, where forwards and halves take the same time: arXiv 2401.10241, table 1.
TEST(Schedule, HalvesLeaveAThirdOfTheBubble) {
  for_each_size_in_halves([](int64_t p, int64_t v, int64_t m) {
    if (m < 2 * p || m % p != 0) return;
    const int64_t work = 3 * m * v;
    EXPECT_EQ(makespan({p, v, m}) - work, 3 * (p - 1));
    EXPECT_EQ(makespan({.stages = p, .virtual_stages = v, .microbatches = m, .kind = zb_h1}) - work, p - 1)
        << p << ' ' << v << ' ' << m;
  });
}

TEST(Schedule, EvaluationNeedsOneSlotAChunk) {
  for_each_size([&](int64_t p, int64_t v, int64_t m) {
    for (PipelineSchedule kind : {one_f_one_b, gpipe}) {
      const PipelineShape shape{p, v, m, 0, kind};
      std::vector<Actions> lists;
      for (int64_t s = 0; s < p; s++) lists.push_back(forward_schedule(shape, s));
      const std::vector<std::vector<int64_t>> slots(size_t(p), std::vector<int64_t>(size_t(v), 1));
      ASSERT_EQ(Simulator(shape, lists, slots, false).run(), "") << words(shape);
    }
  });
}

TEST(Schedule, KnownLists) {
  EXPECT_EQ(words(make_schedule({.microbatches = 3}, 0)), "F0 B0 F1 B1 F2 B2");
  EXPECT_TRUE(make_schedule({.stages = 2, .microbatches = 0}, 1).empty());
  EXPECT_TRUE(forward_schedule({.stages = 2, .microbatches = 0}, 1).empty());
  EXPECT_EQ(words(make_schedule({.stages = 4, .microbatches = 8}, 0)),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(words(make_schedule({.stages = 4, .microbatches = 8}, 2)),
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(words(make_schedule({.stages = 4, .microbatches = 2}, 0)), "F0 F1 B0 B1");
  EXPECT_EQ(words(make_schedule({.stages = 2, .microbatches = 3, .kind = gpipe}, 1)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(words(make_schedule({.stages = 2, .microbatches = 3, .active_microbatches = 2, .kind = gpipe}, 0)),
            "F0 F1 B0 B1 F2 B2");
  EXPECT_EQ(words(make_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 2, .kind = gpipe}, 0)),
            "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
  EXPECT_EQ(words(make_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 4}, 0)),
            "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(words(make_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 4}, 1)),
            "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  EXPECT_EQ(words(make_schedule({.stages = 4, .microbatches = 6, .kind = zb_h1}, 0)),
            "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5");
  EXPECT_EQ(words(make_schedule({.stages = 4, .microbatches = 6, .kind = zb_h1}, 3)),
            "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5");
  EXPECT_EQ(words(make_schedule({.microbatches = 2, .kind = zb_h1}, 0)), "F0 B0 F1 B1") << "alone: nobody to wait for";
  EXPECT_EQ(words(forward_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 3}, 1)),
            "F0 F1 F0.1 F1.1 F2 F2.1");
}

// Warm-up, then one forward, one backward, as the paper has it: (p - stage - 1) forwards; interleaved, with groups of
// p, twice as many and (v - 1) * p.
TEST(Schedule, UnboundedIsTheListByWarmUpCounts) {
  for_each_size([&](int64_t p, int64_t v, int64_t m) {
    if (v > 1 && m % p != 0) return;
    for (int64_t stage = 0; stage < p; stage++) {
      const Actions actions = make_schedule({p, v, m}, stage);
      const int64_t warm_up = std::min(m * v, v == 1 ? p - stage - 1 : 2 * (p - stage - 1) + (v - 1) * p);
      const int64_t total = m * v;
      for (int64_t i = 0; i < 2 * total; i++) {
        const bool steady = i >= warm_up && i < 2 * total - warm_up;
        const bool forward = steady ? (i - warm_up) % 2 == 0 : i < warm_up;
        ASSERT_EQ(actions[static_cast<size_t>(i)].kind == Action::Kind::forward, forward) << words(actions);
      }
    }
  });
}

TEST(Schedule, Makespan) {
  for_each_size([](int64_t p, int64_t v, int64_t m) {
    // In units of a chunk's forward. Full groups leave no gap but the pipeline's filling and draining.
    const int64_t took = makespan({p, v, m}), ideal = 3 * (m * v + p - 1);
    const bool full = v == 1 || m % p == 0;
    EXPECT_TRUE(full ? took == ideal : took <= v * makespan({p, 1, m})) << p << ' ' << v << ' ' << m << ' ' << took;
  });
  // A chunk of two is half a stage: 57 halves against 33 wholes.
  EXPECT_EQ(makespan({.stages = 4, .virtual_stages = 2, .microbatches = 8}), 57);
  EXPECT_EQ(makespan({.stages = 4, .microbatches = 8}), 33);
  // One at a time is no pipeline. With two of four alive, and 12 units from a microbatch's first forward to its last
  // backward, the pipeline takes two every 12 units.
  EXPECT_EQ(makespan({.stages = 4, .microbatches = 16, .active_microbatches = 1}), 16 * 12);
  EXPECT_LE(makespan({.stages = 4, .microbatches = 16, .active_microbatches = 2}), 8 * 12 + 3);
}

TEST(Schedule, LiveMicrobatches) {
  EXPECT_EQ(live_microbatches(make_schedule({.stages = 4, .microbatches = 8}, 0), 1), std::vector<int64_t>{4});
  EXPECT_EQ(live_microbatches(make_schedule({.stages = 4, .microbatches = 8}, 3), 1), std::vector<int64_t>{1});
  EXPECT_EQ(live_microbatches(make_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 4}, 1), 2),
            (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(live_microbatches({}, 2), (std::vector<int64_t>{1, 1}));
}

// The simulator itself: every planted fault is found.
TEST(Schedule, PlantedFaultsAreFound) {
  int64_t planted = 0;
  for (const PipelineShape& shape : {PipelineShape{4, 1, 6}, PipelineShape{3, 2, 5}, PipelineShape{2, 2, 4, 2},
                                     PipelineShape{3, 2, 4, 2, gpipe}, PipelineShape{1, 1, 3},
                                     PipelineShape{3, 1, 5, 0, zb_h1}, PipelineShape{2, 2, 4, 0, zb_h1}}) {
    const std::vector<Actions> good = all_stages(shape);
    ASSERT_EQ(finding(shape, good), "");
    const auto expect_found = [&](size_t stage, const Actions& bad) {
      std::vector<Actions> lists = good;
      lists[stage] = bad;
      EXPECT_NE(finding(shape, lists), "") << words(shape) << " stage " << stage << ": " << words(bad);
      planted++;
    };
    for (size_t stage = 0; stage < good.size(); stage++)
      for (size_t i = 0; i < good[stage].size(); i++) {
        Actions bad = good[stage];
        bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(i));
        expect_found(stage, bad);
        bad = good[stage];
        bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(i), bad[i]);
        expect_found(stage, bad);
        bad = good[stage];
        bad[i].microbatch = (bad[i].microbatch + 1) % shape.microbatches;
        expect_found(stage, bad);
        for (size_t j = i + 1; j < good[stage].size(); j++) {
          // A forward and a backward of different microbatches may change places, within the bounds.
          const Action &a = good[stage][i], &b = good[stage][j];
          if (a.kind != b.kind && !(a.microbatch == b.microbatch && a.chunk == b.chunk)) continue;
          bad = good[stage];
          std::swap(bad[i], bad[j]);
          expect_found(stage, bad);
        }
      }
  }
  EXPECT_GT(planted, 1000);
}

TEST(Schedule, FaultsAreFoundForWhatTheyAre) {
  const auto expect = [](const std::string& found, const char* what) {
    EXPECT_NE(found.find(what), std::string::npos) << found;
  };
  using enum Action::Kind;
  // Each stage's list is good in itself, and they do not fit.
  const PipelineShape four{.stages = 4, .microbatches = 4};
  std::vector<Actions> lists = all_stages(four);
  lists[0] = make_schedule({.microbatches = 4}, 0);
  expect(finding(four, lists), "deadlock");

  const PipelineShape two{.stages = 2, .virtual_stages = 2, .microbatches = 2};
  lists = all_stages(two);
  ASSERT_EQ(words(lists[1]), "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1");
  std::swap(lists[1][1], lists[1][2]);
  expect(finding(two, lists), "stage 1, action 1 (F0.1): received microbatch 1 for chunk 1");

  PipelineShape bounded{.stages = 2, .microbatches = 4};
  lists = all_stages(bounded);
  bounded.active_microbatches = 1;
  expect(finding(bounded, lists), "2 alive");
  expect(Simulator(bounded, lists, {{1}, {1}}).run(), "slot taken by 0");

  // All of chunk 0 before chunk 1 fits into enough slots; with one, sends wait for each other.
  const PipelineShape looped{.stages = 2, .virtual_stages = 2, .microbatches = 4};
  Actions all_of_a_chunk;
  for (int64_t c : {0, 1})
    for (int64_t k = 0; k < 4; k++) all_of_a_chunk.push_back({forward, k, c});
  lists = {all_of_a_chunk, all_of_a_chunk};
  EXPECT_EQ(Simulator(looped, lists, {{4, 4}, {4, 4}}, false).run(), "");
  expect(Simulator(looped, lists, {{1, 1}, {1, 1}}, false).run(), "deadlock");
}

TEST(Schedule, ImpossibleShapes) {
  EXPECT_NE(message_of([] {
              make_schedule({.stages = 1, .virtual_stages = 2}, 0);
            }).find("a pipeline of 1 stages with 2 virtual stages"),
            std::string::npos);
  EXPECT_EQ(message_of([] { make_schedule({.stages = 2}, 2); }), "stage 2 of a pipeline of 2");
  EXPECT_NE(message_of([] { forward_schedule({.stages = 0}, 0); }).find("stages start at 1"), std::string::npos);
}

}  // namespace
}  // namespace megalith
