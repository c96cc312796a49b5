// Schedules whose backward passes have two halves, on the simulator of schedule_simulator.h, beside those of 1F1B.
#include <functional>
#include <set>

#include "tests/pure/schedule_simulator.h"

namespace megalith::test {
namespace {

using enum PipelineSchedule;

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

// In a V the memory does not grow with the stages' distance from the end, and the bubble is a sixth of 1F1B's.
TEST(Schedule, VsAreCompleteInOrderAndHoldWhatTheySay) {
  for (int64_t p : {2, 3, 4, 5, 8, 11, 16})
    for (int64_t m : std::set<int64_t>{0, 1, p - 1, p + 1, 2 * p, 4 * p})
      for (PipelineSchedule kind : {zb_v, v_half}) {
        const PipelineShape shape{.stages = p, .virtual_stages = 2, .microbatches = m, .kind = kind};
        Simulator s = simulator(shape, all_stages(shape));
        ASSERT_EQ(s.run(), "") << words(shape);
        EXPECT_LE(s.most_held(), kind == zb_v ? 2 * p : p + 2) << words(shape);
        const int64_t waits = s.makespan() - 6 * m;
        if (m < 2 * p) continue;
        EXPECT_LE(waits, kind == zb_v ? p - 1 : 3 * (p - 1)) << words(shape) << ": of 6 * (p - 1)";
      }
}

TEST(Schedule, VsEvaluateWithOneSlotAChunk) {
  for (int64_t p : {2, 3, 4, 5, 8, 11, 16})
    for (int64_t m : std::set<int64_t>{0, 1, p - 1, p + 1, 4 * p}) {
      const PipelineShape shape{.stages = p, .virtual_stages = 2, .microbatches = m, .kind = zb_v};
      std::vector<Actions> lists;
      for (int64_t s = 0; s < p; s++) lists.push_back(forward_schedule(shape, s));
      const std::vector<std::vector<int64_t>> slots(size_t(p), {1, 1});
      Simulator s(shape, lists, slots, false);
      ASSERT_EQ(s.run(), "") << words(shape);
      EXPECT_LE(s.makespan(), 2 * m + 2 * p) << "stages work at the same time";
    }
}

// Chunks that take any time: the lists are as complete, and hold no more.
TEST(Schedule, HalvesHeedTimes) {
  uint64_t state = 1;
  const auto drawn = [&] { return 1 + static_cast<int64_t>((state = state * 6364136223846793005u + 1) >> 60); };
  for_each_size_in_halves([&](int64_t p, int64_t v, int64_t m) {
    PipelineShape timed{p, v, m, 0, zb_h1}, whole{p, v, m};
    for (int64_t c = 0; c < p * v; c++) timed.times.push_back({drawn(), drawn(), drawn()});
    Simulator s = simulator(timed, all_stages(timed)), w = simulator(whole, all_stages(whole));
    ASSERT_EQ(s.run(), "") << words(timed);
    ASSERT_EQ(w.run(), "") << words(whole);
    ASSERT_LE(s.most_held(), w.most_held()) << words(timed);
    for (PipelineSchedule kind : {zb_v, v_half}) {
      if (v != 2) continue;
      timed.kind = kind;
      Simulator shaped = simulator(timed, all_stages(timed));
      ASSERT_EQ(shaped.run(), "") << words(timed);
      ASSERT_LE(shaped.most_held(), kind == zb_v ? 2 * p : p + 2) << words(timed);
    }
  });
  // The head makes the last stage late: others do more halves for weights before they wait for it.
  PipelineShape shape{.stages = 4, .microbatches = 8, .kind = zb_h1};
  const Actions even = make_schedule(shape, 2);
  shape.times = {{10, 12, 8}, {10, 12, 8}, {10, 12, 8}, {25, 12, 8}};
  EXPECT_NE(make_schedule(shape, 2), even);
}

}  // namespace
}  // namespace megalith::test
