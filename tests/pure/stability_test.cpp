// Which steps are stable, what checkpoints are worth for it, and that the same is known after a resume.
#include "trainer/checkpointing/stability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/system/json.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

using Steps = std::set<int64_t>;
constexpr double skipped_loss = NAN;

Stability resumed(const nlohmann::json& state, int64_t step) {
  const Manifest manifest{.step = step, .state = state, .files = {}};
  return Stability::from(StateReader(manifest, "run/checkpoints/step-00000150"), step);
}

// Stable steps of this loss, from the one that follows, up to `last`.
void stable_until(Stability& stability, int64_t last, double loss = 3) {
  while (stability.last_step() < last) stability.record(stability.last_step() + 1, false, loss);
}
void bad_until(Stability& stability, int64_t last) {
  while (stability.last_step() < last) stability.record(stability.last_step() + 1, true, skipped_loss);
}

TEST(Stability, ALossFarAboveItsPastIsAnAnomaly) {
  Stability stability;
  stability.record(1, false, 11);  // whatever the first is
  stable_until(stability, 100, 3);
  EXPECT_FALSE(stability.anomaly_since());
  stability.record(101, false, 6);  // twice the median
  EXPECT_FALSE(stability.anomaly_since());
  stability.record(102, false, 6.01);
  EXPECT_EQ(stability.anomaly_since(), 102);
  for (int64_t s = 103; s < 400; s++)
    stability.record(s, false, 7);  // it does not become the past, however long it lasts
  EXPECT_EQ(stability.anomaly_since(), 102);
  stability.record(400, false, 3);
  EXPECT_FALSE(stability.anomaly_since());
  EXPECT_EQ(stability.stable_after(101), 0);
  EXPECT_EQ(stability.stable_after(90), 11);
  EXPECT_EQ(stability.stable_after(399), 1);
}

TEST(Stability, SmallLossesMayMoveByANat) {
  Stability stability;
  stable_until(stability, 20, 0.01);
  stability.record(21, false, 1.0);
  EXPECT_FALSE(stability.anomaly_since());
  stability.record(22, false, 1.02);
  EXPECT_TRUE(stability.anomaly_since());
}

TEST(Stability, SkippedStepsInfinityAndValidationAreAnomalies) {
  for (const int what : {0, 1, 2}) {
    Stability stability;
    stable_until(stability, 5);
    if (what == 0) stability.record(6, true, 3);  // a spike of the norm
    if (what == 1) stability.record(6, false, INFINITY);
    if (what == 2) {
      stable_until(stability, 6);
      stability.anomaly_in_validation();
    }
    EXPECT_EQ(stability.anomaly_since(), 6) << what;
    EXPECT_EQ(stability.stable_after(3), 2) << what;
    stable_until(stability, 7);
    EXPECT_FALSE(stability.anomaly_since()) << what;
  }
}

TEST(Stability, ChangedDataHasAnotherPast) {
  Stability stability;
  stable_until(stability, 20, 1);
  stability.forget_losses();
  stability.record(21, false, 9);
  EXPECT_FALSE(stability.anomaly_since());
}

TEST(Stability, IsTheSameAfterAResume) {
  Stability whole;
  const auto course = [](int64_t s) { return s % 50 == 7 ? 20.0 : 3 + 0.01 * static_cast<double>(s % 13); };
  for (int64_t s = 1; s <= 150; s++) whole.record(s, s % 40 == 3, course(s));
  Stability pieces = resumed(whole.to_json(), 150);
  for (Stability* stability : {&whole, &pieces})
    for (int64_t s = 151; s <= 400; s++) stability->record(s, s % 40 == 3, course(s));
  EXPECT_EQ(whole.to_json(), pieces.to_json());
  EXPECT_EQ(whole.to_json().at("losses").size(), Stability::window);
  for (int64_t s = 0; s <= 400; s++) EXPECT_EQ(whole.stable_after(s), pieces.stable_after(s)) << s;
}

TEST(Stability, RemembersTheLastAnomalies) {
  Stability stability;
  for (int64_t s = 1; s <= 2000; s++) stability.record(s, s % 4 == 0, 3);
  EXPECT_EQ(stability.to_json().at("troubles").size(), Stability::most_anomalies);
  EXPECT_EQ(stability.stable_after(1996), 3);
  EXPECT_EQ(resumed(nlohmann::json::object(), 9).stable_after(2), 7) << "of an older checkpoint";
}

TEST(Stability, AStateThatSomebodyEditedIsRefusedInWords) {
  const auto expect = [](const char* key, const nlohmann::json& value, const std::string& words) {
    const std::string message = message_of([&] { resumed({{key, value}}, 150); });
    EXPECT_NE(
        message.find(fmt::format("checkpoint run/checkpoints/step-00000150: {} in its manifest is {}", key, words)),
        std::string::npos)
        << message;
  };
  using nlohmann::json;
  expect("losses", 3, "not a list of numbers");
  expect("losses", {3.5, "much"}, "string; expected a number");
  expect("losses", {3.5, nullptr}, "null; expected a number");
  EXPECT_TRUE(resumed({{"losses", {1e-9, -1e-9}}}, 150).is_normal(1)) << "rounding may make one negative";
  const std::string wanted = "; expected a list of pairs [first, last] of steps up to 150, ascending";
  expect("troubles", 7, "7" + wanted);
  for (const char* pair : {"7", "[]", "[1]", "[1,2,3]", "[1,2.5]", "[1,\"2\"]", "[3,2]", "[-1,2]", "[140,151]",
                           "[1,18446744073709551615]"})
    expect("troubles", json::array({parse_json(pair)}), pair + wanted);
  expect("troubles", {{7, 9}, {9, 12}}, "[9,12]" + wanted);
  EXPECT_EQ(resumed({{"troubles", {{7, 9}, {100, 150}}}}, 150).anomaly_since(), 100);
}

// Saves every `every` steps as a run does, and returns what is there after the last.
struct Saves {
  int64_t every, keep, settle, keep_every = 0;
  Steps there{};
  size_t most = 0;  // that were there at once
  void prune(const Stability& stability) {
    const Steps needed = needed_checkpoints(there, stability, settle, keep_every);
    if (keep_every == 0) {
      EXPECT_LE(needed.size(), 2u);
    }
    for (auto it = there.begin(); it != there.end();) {
      const auto newer = std::distance(it, there.end()) - 1;
      it = newer < keep || needed.contains(*it) ? std::next(it) : there.erase(it);
    }
  }
  void after_step(const Stability& stability) {
    if (stability.last_step() % every == 0) save(stability);
  }
  void save(const Stability& stability) {
    prune(stability);
    there.insert(stability.last_step());
    most = std::max(most, there.size());
    prune(stability);
  }
};

TEST(Stability, ACheckpointIsKeptUntilANewerOneHasSettled) {
  for (const int64_t every : {10, 30, 100, 250})
    for (const int64_t keep : {1, 2, 3})
      for (const int64_t settle : {0, 1, 100, 170}) {
        SCOPED_TRACE(::testing::Message() << every << " " << keep << " " << settle);
        Saves saves{every, keep, settle};
        Stability stability;
        int64_t settled = 0;  // the newest that ever was
        for (int64_t s = 1; s <= 3000; s++) {
          const bool bad = (s > 1200 && s < 1290) || s == 1700 || (s > 2400 && s % 70 == 0);
          stability.record(s, bad, 3);
          saves.after_step(stability);
          for (const int64_t there : saves.there)
            if (stability.settled(there, settle)) settled = std::max(settled, there);
          EXPECT_TRUE(settled == 0 || saves.there.contains(settled)) << s;
        }
        EXPECT_LE(saves.most, static_cast<size_t>(keep + 3)) << "while one is written";
        EXPECT_GE(settled, 2440 - 2 * settle - every) << "newer ones do settle";
      }
}

// Where checkpoints are further apart than they take to settle, no more are there than without.
TEST(Stability, WhatHasSettledMakesRoom) {
  Saves saves{.every = 250, .keep = 1, .settle = 100};
  Stability stability;
  for (int64_t s = 1; s <= 2000; s++) {
    stability.record(s, false, 3);
    saves.after_step(stability);
  }
  EXPECT_EQ(saves.most, 2u);
  EXPECT_EQ(saves.there, (Steps{1750, 2000}));
}

// Whatever steps are saved, anomalies or not: of each multiple the first at or after it is there for good, beside it
// no more than without a history, and still the newest that has settled.
TEST(Stability, AHistoryIsKeptForGood) {
  for (const int64_t keep_every : {40, 300, 5000})
    for (const int64_t between : {9, 40, 700}) {  // steps between saves, on average: as by time
      SCOPED_TRACE(::testing::Message() << keep_every << " " << between);
      Saves saves{.every = 1, .keep = 2, .settle = 30, .keep_every = keep_every};
      Stability stability;
      Steps saved;
      int64_t settled = 0;  // the newest that ever was
      for (int64_t s = 1, random = 7; s <= 2000; s++) {
        stability.record(s, s % 400 > 370, 3);
        random = random * 1103515245 % 2147483647;
        if (random % between != 0) continue;
        saves.save(stability);
        saved.insert(s);
        for (const int64_t there : saves.there)
          if (stability.settled(there, saves.settle)) settled = std::max(settled, there);
        EXPECT_TRUE(settled == 0 || saves.there.contains(settled)) << s;
      }
      Steps history;
      for (int64_t multiple = keep_every; multiple <= 2000; multiple += keep_every)
        if (const auto first = saved.lower_bound(multiple); first != saved.end()) history.insert(*first);
      EXPECT_TRUE(std::includes(saves.there.begin(), saves.there.end(), history.begin(), history.end()));
      EXPECT_LE(saves.there.size(), history.size() + 4) << "two to keep, two to go back to";
    }
}

TEST(Stability, GoesBackToWhatHasSettledBeforeTheAnomaly) {
  Stability stability;
  stable_until(stability, 250);
  bad_until(stability, 252);
  const LastWeights spoilt{.since = 250, .stable = false};
  EXPECT_EQ(restart_step({50, 100, 150, 200, 250, 251}, stability, 100, spoilt), 150);
  EXPECT_EQ(restart_step({50, 100, 150, 200, 250, 251}, stability, 0, spoilt), 200) << "250 has the same weights";
  EXPECT_EQ(restart_step({200, 240, 251}, stability, 100, spoilt), 200) << "none has settled";
  EXPECT_EQ(restart_step({250, 251}, stability, 100, spoilt), std::nullopt);
  EXPECT_EQ(restart_step({}, stability, 100, spoilt), std::nullopt);
  // Where it is not the weights, no step is lost.
  const LastWeights stable{.since = 250, .stable = true};
  EXPECT_EQ(restart_step({50, 100, 150, 200, 250, 251}, stability, 100, stable), 250);
  EXPECT_EQ(restart_step({50, 100, 150, 200, 251, 252}, stability, 100, stable), 251) << "it has them as well";
  EXPECT_EQ(restart_step({50, 100, 150, 200}, stability, 100, stable), 150);
  EXPECT_EQ(restart_step({}, stability, 100, stable), std::nullopt);
  // Losses that were anomalies before one step was skipped.
  Stability ruined;
  stable_until(ruined, 50);
  for (int64_t s = 51; s <= 60; s++) ruined.record(s, false, 1e5);
  bad_until(ruined, 61);
  EXPECT_EQ(restart_step({20, 40, 55}, ruined, 100, {.since = 60, .stable = false}), 20);
  EXPECT_EQ(restart_step({55}, ruined, 100, {.since = 60, .stable = false}), std::nullopt) << "it is of the anomaly";
  EXPECT_FALSE(ruined.is_normal(1e5));
  EXPECT_TRUE(ruined.is_normal(3.5));
  // An earlier anomaly, and one too short a time ago.
  Stability twice;
  stable_until(twice, 100);
  bad_until(twice, 101);
  stable_until(twice, 150);
  bad_until(twice, 151);
  const LastWeights last{.since = 150, .stable = false};
  EXPECT_EQ(restart_step({10, 90, 110, 140}, twice, 50, last), 10) << "the only one that had settled";
  EXPECT_EQ(restart_step({90, 110, 140}, twice, 50, last), 110);
  EXPECT_EQ(restart_step({90, 140}, twice, 50, last), 140)
      << "10 stable steps followed each, and the newer loses fewer";
  EXPECT_EQ(needed_checkpoints({90, 140}, twice, 50), Steps{90}) << "none has settled, or can";
}

}  // namespace
}  // namespace megalith
