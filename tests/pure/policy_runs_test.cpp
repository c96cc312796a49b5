// Whole runs by the policy, in which a made-up world answers every action, and their laws.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/pure/policy_rules.h"

namespace megalith::policy {
namespace {

// A world in which everything goes well, unless it is told otherwise.
struct World {
  Rules rules = ten_steps();
  State state;
  std::string course;  // "t1 r1 t2 r2 e2 s2 ..."; a step's number behind its actions
  std::function<void(StepEnded&, int64_t step)> changes = [](StepEnded&, int64_t) {};
  std::optional<GracePeriod> preemption{};
  int64_t launched, reported;
  int64_t failing_saves = 0;  // so many fail
  double minutes = 0;         // without a checkpoint, then
  Act why{};                  // it failed
  int64_t saved_from = 0;     // the step that the save in flight holds

  explicit World(int64_t completed = 0)
      : state(start(rules, {.step = completed, .sequences = 2 * completed}, completed / 4 * 4)),
        launched(completed),
        reported(completed) {}

  Event ended_save(int64_t step) {
    if (failing_saves <= 0) return SaveEnded{.step = step};
    failing_saves--;
    return SaveFailed{.minutes = minutes += 0.4};
  }
  Events obey(const Task& a) {
    const auto note = [&](const char* what, int64_t step) { course += what + std::to_string(step) + " "; };
    const int64_t step = state.progress.step;
    switch (a.act) {
      case Act::train: return note("t", ++launched), Events{StepLaunched{}};
      case Act::report: {
        note("r", ++reported);
        StepEnded ended{.save_phase_done = state.save_in_flight};
        changes(ended, reported);
        return {ended};
      }
      case Act::check_preemption: return {PreemptionChecked{preemption}};
      case Act::evaluate: return note("e", step), Events{Evaluated{}};
      case Act::save: return note("s", step), Events{ended_save(step)};
      case Act::save_last_update: return note("u", state.last_update.step), Events{ended_save(state.last_update.step)};
      case Act::begin_save: return note("b", saved_from = step), Events{SaveBegun{}};
      case Act::advance_save:
      case Act::finish_save: return note("f", saved_from), Events{ended_save(saved_from)};
      default: return {};
    }
  }
  // Returns the last action.
  Act run() {
    for (Events events;;) {
      const Tasks actions = next(rules, state, std::exchange(events, {}));
      for (const Task& a : actions)
        for (const Event& e : obey(a)) events.push_back(e);
      if (fails(actions.back().act)) {
        why = actions.back().act;
        events = {Failed{}};
      }
      if (ends_well(actions.back().act) || actions.back().act == Act::rethrow) return actions.back().act;
    }
  }
};

TEST(PolicyRuns, AWholeRun) {
  World world;
  EXPECT_EQ(world.run(), Act::end_done);
  EXPECT_EQ(world.course, "t1 r1 t2 r2 t3 r3 t4 r4 e4 b4 t5 r5 f4 t6 r6 t7 r7 t8 r8 e8 b8 t9 r9 f8 t10 r10 e10 s10 ");
  EXPECT_EQ(world.state.newest_checkpoint, 10);
  EXPECT_EQ(world.state.last_update.step, 10);
  EXPECT_EQ(world.state.last_update.sequences, 20);
}

TEST(PolicyRuns, AWholeRunOnAGpu) {
  World world;
  world.rules.steps_ahead = 1;
  EXPECT_EQ(world.run(), Act::end_done);
  EXPECT_EQ(world.course, "t1 t2 r1 t3 r2 t4 r3 r4 e4 b4 t5 t6 r5 f4 t7 r6 t8 r7 r8 e8 b8 t9 t10 r9 f8 r10 e10 s10 ");
}

TEST(PolicyRuns, ASaveThatIsDueByTimeIsMadeOnce) {
  World world(5);
  world.changes = [](StepEnded& e, int64_t step) { e.save = step == 6; };
  EXPECT_EQ(world.run(), Act::end_done);
  EXPECT_EQ(world.course, "t6 r6 b6 t7 r7 f6 t8 r8 e8 b8 t9 r9 f8 t10 r10 e10 s10 ");
}

TEST(PolicyRuns, ASignalWhileASaveIsInFlight) {
  World world;
  world.preemption = GracePeriod{.time_to_save = true};
  world.changes = [](StepEnded& e, int64_t step) {
    e.save_phase_done = false;
    e.stop = step == 6;
  };
  EXPECT_EQ(world.run(), Act::end_preempted);
  EXPECT_EQ(world.course, "t1 r1 t2 r2 t3 r3 t4 r4 e4 b4 t5 r5 t6 r6 f4 s6 ");
}

// The second of a GPU's two steps in flight is not reported any more.
TEST(PolicyRuns, TooManyBadStepsOnAGpu) {
  World world;
  world.rules.steps_ahead = 1;
  world.changes = [](StepEnded& e, int64_t step) { e.outcome = step >= 6 ? StepOutcome::bad : StepOutcome::updated; };
  EXPECT_EQ(world.run(), Act::rethrow);
  EXPECT_EQ(world.course, "t1 t2 r1 t3 r2 t4 r3 r4 e4 b4 t5 t6 r5 f4 t7 r6 t8 r7 u5 ");
  EXPECT_EQ(world.why, Act::fail_bad_steps);
  EXPECT_EQ(world.state.newest_checkpoint, 5);
  EXPECT_EQ(world.state.last_update.sequences, 10);
  EXPECT_EQ(world.state.progress.stability.anomaly_since(), 6);
}

TEST(PolicyRuns, TheLastSaveIsTriedUntilItSucceedsOrPatienceIsOver) {
  World world(9);
  world.failing_saves = 3;
  world.rules.patience = 1000;
  EXPECT_EQ(world.run(), Act::end_done);
  EXPECT_EQ(world.course, "t10 r10 e10 s10 s10 s10 s10 ");

  World without(9);
  without.failing_saves = 9;
  EXPECT_EQ(without.run(), Act::rethrow);
  EXPECT_EQ(without.course, "t10 r10 e10 s10 s10 s10 ");
  EXPECT_EQ(without.why, Act::fail_save_patience);
}

struct Change {
  const char* name;
  void (*apply)(StepEnded&);
};
constexpr Change all_changes[] = {
    {"stop", [](StepEnded& e) { e.stop = true; }},
    {"save", [](StepEnded& e) { e.save = true; }},
    {"bad", [](StepEnded& e) { e.outcome = StepOutcome::bad; }},
    {"not finite", [](StepEnded& e) { e.loss = std::numeric_limits<double>::infinity(); }}};

// A run ends, reports its steps in order, saves and evaluates no step before it is reported, and ends well only with
// its last step in a checkpoint.
void expect_laws(World& world, bool loses_its_end) {
  const Act how = world.run();
  SCOPED_TRACE(world.course);
  EXPECT_EQ(how == Act::end_preempted_lost, loses_its_end);
  EXPECT_EQ(world.state.newest_checkpoint == world.state.progress.step, !loses_its_end);
  EXPECT_EQ(world.state.in_flight, 0);
  EXPECT_FALSE(world.state.save_in_flight);
  int64_t reported = 0;
  for (size_t i = 0, end = 0; end + 1 < world.course.size(); i = end + 1) {
    end = world.course.find(' ', i);
    const int64_t step = std::stoll(world.course.substr(i + 1, end - i - 1));
    const std::string what = world.course.substr(i, 1);
    reported += what == "r";
    if (std::string("rsbe").find(what) != std::string::npos) {
      EXPECT_EQ(step, reported);
    }
  }
}

TEST(PolicyRuns, LawsWhateverComesInWhicheverStep) {
  const std::optional<GracePeriod> no_signal{}, time_for_all{{true, true}}, no_time{{false, false}};
  for (const int64_t ahead : {0, 1})
    for (const bool asynchronous : {false, true})
      for (const Change& change : all_changes)
        for (const auto& signal : {no_signal, time_for_all, no_time})
          for (int64_t at = 1; at <= 10; at++) {
            SCOPED_TRACE(std::string(change.name) + " in step " + std::to_string(at));
            World world;
            world.rules.steps_ahead = ahead;
            world.rules.asynchronous_saves = asynchronous;
            world.preemption = signal;
            world.changes = [&](StepEnded& e, int64_t step) { step == at ? change.apply(e) : void(); };
            const bool stops = std::string(change.name) == "stop" && at + ahead < 10;
            expect_laws(world, stops && signal && !signal->time_to_save);
          }
}

}  // namespace
}  // namespace megalith::policy
