// Schedules of 1 to 8 stages and 1 to 32 microbatches, on the simulator of schedule_simulator.h.
#include "tests/pure/schedule_simulator.h"

#include <functional>
#include <set>

#include "tests/long_tests.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

using enum PipelineSchedule;

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
        Simulator s = simulator(shape, make_schedules(shape));
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
  EXPECT_EQ(words(make_schedules({.microbatches = 3})[0]), "F0 B0 F1 B1 F2 B2");
  EXPECT_TRUE(make_schedules({.stages = 2, .microbatches = 0})[1].empty());
  EXPECT_TRUE(forward_schedule({.stages = 2, .microbatches = 0}, 1).empty());
  EXPECT_EQ(words(make_schedules({.stages = 4, .microbatches = 8})[0]),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(words(make_schedules({.stages = 4, .microbatches = 8})[2]),
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(words(make_schedules({.stages = 4, .microbatches = 2})[0]), "F0 F1 B0 B1");
  EXPECT_EQ(words(make_schedules({.stages = 2, .microbatches = 3, .kind = gpipe})[1]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(words(make_schedules({.stages = 2, .microbatches = 3, .active_microbatches = 2, .kind = gpipe})[0]),
            "F0 F1 B0 B1 F2 B2");
  EXPECT_EQ(words(make_schedules({.stages = 2, .virtual_stages = 2, .microbatches = 2, .kind = gpipe})[0]),
            "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
  EXPECT_EQ(words(make_schedules({.stages = 2, .virtual_stages = 2, .microbatches = 4})[0]),
            "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(words(make_schedules({.stages = 2, .virtual_stages = 2, .microbatches = 4})[1]),
            "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  EXPECT_EQ(words(make_schedules({.stages = 4, .microbatches = 6, .kind = zb_h1})[0]),
            "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5");
  EXPECT_EQ(words(make_schedules({.stages = 4, .microbatches = 6, .kind = zb_h1})[3]),
            "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5");
  EXPECT_EQ(words(make_schedules({.microbatches = 2, .kind = zb_h1})[0]), "F0 B0 F1 B1") << "alone: nobody to wait for";
  EXPECT_EQ(words(forward_schedule({.stages = 2, .virtual_stages = 2, .microbatches = 3}, 1)),
            "F0 F1 F0.1 F1.1 F2 F2.1");
}

// Warm-up, then one forward, one backward, as the paper has it: (p - stage - 1) forwards; interleaved, with groups of
// p, twice as many and (v - 1) * p.
TEST(Schedule, UnboundedIsTheListByWarmUpCounts) {
  for_each_size([&](int64_t p, int64_t v, int64_t m) {
    if (v > 1 && m % p != 0) return;
    for (int64_t stage = 0; stage < p; stage++) {
      const Actions actions = make_schedules({p, v, m})[static_cast<size_t>(stage)];
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
  EXPECT_EQ(live_microbatches(make_schedules({.stages = 4, .microbatches = 8})[0], 1), std::vector<int64_t>{4});
  EXPECT_EQ(live_microbatches(make_schedules({.stages = 4, .microbatches = 8})[3], 1), std::vector<int64_t>{1});
  EXPECT_EQ(live_microbatches(make_schedules({.stages = 2, .virtual_stages = 2, .microbatches = 4})[1], 2),
            (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(live_microbatches({}, 2), (std::vector<int64_t>{1, 1}));
}

// The simulator itself: every planted fault is found.
TEST(Schedule, PlantedFaultsAreFound) {
  int64_t planted = 0;
  for (const PipelineShape& shape :
       {PipelineShape{4, 1, 6}, PipelineShape{3, 2, 5}, PipelineShape{2, 2, 4, 2}, PipelineShape{3, 2, 4, 2, gpipe},
        PipelineShape{1, 1, 3}, PipelineShape{3, 1, 5, 0, zb_h1}, PipelineShape{2, 2, 4, 0, zb_h1}}) {
    const std::vector<Actions> good = make_schedules(shape);
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
  std::vector<Actions> lists = make_schedules(four);
  lists[0] = make_schedules({.microbatches = 4})[0];
  expect(finding(four, lists), "deadlock");

  const PipelineShape two{.stages = 2, .virtual_stages = 2, .microbatches = 2};
  lists = make_schedules(two);
  ASSERT_EQ(words(lists[1]), "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1");
  std::swap(lists[1][1], lists[1][2]);
  expect(finding(two, lists), "stage 1, action 1 (F0.1): received microbatch 1 for chunk 1");

  PipelineShape bounded{.stages = 2, .microbatches = 4};
  lists = make_schedules(bounded);
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
              make_schedules({.stages = 1, .virtual_stages = 2});
            }).find("a pipeline of 1 stages with 2 virtual stages"),
            std::string::npos);
  EXPECT_EQ(message_of([] { forward_schedule({.stages = 2}, 2); }), "stage 2 of a pipeline of 2");
  EXPECT_NE(message_of([] { forward_schedule({.stages = 0}, 0); }).find("there must be at least 1 stage"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith::test
