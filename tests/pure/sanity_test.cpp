// Which steps are sane, what checkpoints are worth for it, and that the same is known after a resume.
#include "trainer/checkpointing/sanity.h"

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

Sanity resumed(const nlohmann::json& state, int64_t step) {
  const Manifest manifest{.step = step, .state = state, .files = {}};
  return Sanity::from(StateReader(manifest, "run/checkpoints/step-00000150"), step);
}

// Sane steps of this loss, from the one that follows, up to `last`.
void sane_until(Sanity& sanity, int64_t last, double loss = 3) {
  while (sanity.last_step() < last) sanity.see(sanity.last_step() + 1, false, loss);
}
void bad_until(Sanity& sanity, int64_t last) {
  while (sanity.last_step() < last) sanity.see(sanity.last_step() + 1, true, skipped_loss);
}

TEST(Sanity, ALossFarAboveItsPastIsTrouble) {
  Sanity sanity;
  sanity.see(1, false, 11);  // whatever the first is
  sane_until(sanity, 100, 3);
  EXPECT_FALSE(sanity.trouble_since());
  sanity.see(101, false, 6);  // twice the median
  EXPECT_FALSE(sanity.trouble_since());
  sanity.see(102, false, 6.01);
  EXPECT_EQ(sanity.trouble_since(), 102);
  for (int64_t s = 103; s < 400; s++) sanity.see(s, false, 7);  // it does not become the past, however long it lasts
  EXPECT_EQ(sanity.trouble_since(), 102);
  sanity.see(400, false, 3);
  EXPECT_FALSE(sanity.trouble_since());
  EXPECT_EQ(sanity.sane_after(101), 0);
  EXPECT_EQ(sanity.sane_after(90), 11);
  EXPECT_EQ(sanity.sane_after(399), 1);
}

TEST(Sanity, SmallLossesMayMoveByANat) {
  Sanity sanity;
  sane_until(sanity, 20, 0.01);
  sanity.see(21, false, 1.0);
  EXPECT_FALSE(sanity.trouble_since());
  sanity.see(22, false, 1.02);
  EXPECT_TRUE(sanity.trouble_since());
}

TEST(Sanity, SkippedStepsInfinityAndValidationAreTrouble) {
  for (const int what : {0, 1, 2}) {
    Sanity sanity;
    sane_until(sanity, 5);
    if (what == 0) sanity.see(6, true, 3);  // a spike of the norm
    if (what == 1) sanity.see(6, false, INFINITY);
    if (what == 2) {
      sane_until(sanity, 6);
      sanity.trouble_in_validation();
    }
    EXPECT_EQ(sanity.trouble_since(), 6) << what;
    EXPECT_EQ(sanity.sane_after(3), 2) << what;
    sane_until(sanity, 7);
    EXPECT_FALSE(sanity.trouble_since()) << what;
  }
}

TEST(Sanity, AnotherCourseHasAnotherPast) {
  Sanity sanity;
  sane_until(sanity, 20, 1);
  sanity.forget_losses();
  sanity.see(21, false, 9);
  EXPECT_FALSE(sanity.trouble_since());
}

TEST(Sanity, IsTheSameAfterAResume) {
  Sanity whole;
  const auto course = [](int64_t s) { return s % 50 == 7 ? 20.0 : 3 + 0.01 * static_cast<double>(s % 13); };
  for (int64_t s = 1; s <= 150; s++) whole.see(s, s % 40 == 3, course(s));
  Sanity pieces = resumed(whole.to_json(), 150);
  for (Sanity* sanity : {&whole, &pieces})
    for (int64_t s = 151; s <= 400; s++) sanity->see(s, s % 40 == 3, course(s));
  EXPECT_EQ(whole.to_json(), pieces.to_json());
  EXPECT_EQ(whole.to_json().at("losses").size(), Sanity::window);
  for (int64_t s = 0; s <= 400; s++) EXPECT_EQ(whole.sane_after(s), pieces.sane_after(s)) << s;
}

TEST(Sanity, RemembersTheLastTroubles) {
  Sanity sanity;
  for (int64_t s = 1; s <= 2000; s++) sanity.see(s, s % 4 == 0, 3);
  EXPECT_EQ(sanity.to_json().at("troubles").size(), Sanity::most_troubles);
  EXPECT_EQ(sanity.sane_after(1996), 3);
  EXPECT_EQ(resumed(nlohmann::json::object(), 9).sane_after(2), 7) << "of an older checkpoint";
}

TEST(Sanity, AStateThatSomebodyEditedIsRefusedInWords) {
  const auto expect = [](const char* key, const nlohmann::json& value, const std::string& words) {
    const std::string message = message_of([&] { resumed({{key, value}}, 150); });
    EXPECT_NE(
        message.find(fmt::format("checkpoint run/checkpoints/step-00000150: {} in its manifest is {}", key, words)),
        std::string::npos)
        << message;
  };
  using nlohmann::json;
  expect("losses", 3, "no list of numbers");
  expect("losses", {3.5, "much"}, "string; expected a number");
  expect("losses", {3.5, nullptr}, "null; expected a number");
  EXPECT_TRUE(resumed({{"losses", {1e-9, -1e-9}}}, 150).is_sane(1)) << "rounding may make one negative";
  const std::string wanted = "; expected a list of pairs [first, last] of steps up to 150, ascending";
  expect("troubles", 7, "7" + wanted);
  for (const char* pair : {"7", "[]", "[1]", "[1,2,3]", "[1,2.5]", "[1,\"2\"]", "[3,2]", "[-1,2]", "[140,151]",
                           "[1,18446744073709551615]"})
    expect("troubles", json::array({parse_json(pair)}), pair + wanted);
  expect("troubles", {{7, 9}, {9, 12}}, "[9,12]" + wanted);
  EXPECT_EQ(resumed({{"troubles", {{7, 9}, {100, 150}}}}, 150).trouble_since(), 100);
}

// Saves every `every` steps as a run does, and returns what is there after the last.
struct Saves {
  int64_t every, keep, settle, keep_every = 0;
  Steps there{};
  size_t most = 0;  // that were there at once
  void prune(const Sanity& sanity) {
    const Steps needed = needed_checkpoints(there, sanity, settle, keep_every);
    if (keep_every == 0) {
      EXPECT_LE(needed.size(), 2u);
    }
    for (auto it = there.begin(); it != there.end();) {
      const auto newer = std::distance(it, there.end()) - 1;
      it = newer < keep || needed.contains(*it) ? std::next(it) : there.erase(it);
    }
  }
  void after_step(const Sanity& sanity) {
    if (sanity.last_step() % every == 0) save(sanity);
  }
  void save(const Sanity& sanity) {
    prune(sanity);
    there.insert(sanity.last_step());
    most = std::max(most, there.size());
    prune(sanity);
  }
};

TEST(Sanity, ACheckpointIsKeptUntilANewerOneHasSettled) {
  for (const int64_t every : {10, 30, 100, 250})
    for (const int64_t keep : {1, 2, 3})
      for (const int64_t settle : {0, 1, 100, 170}) {
        SCOPED_TRACE(::testing::Message() << every << " " << keep << " " << settle);
        Saves saves{every, keep, settle};
        Sanity sanity;
        int64_t settled = 0;  // the newest that ever was
        for (int64_t s = 1; s <= 3000; s++) {
          const bool bad = (s > 1200 && s < 1290) || s == 1700 || (s > 2400 && s % 70 == 0);
          sanity.see(s, bad, 3);
          saves.after_step(sanity);
          for (const int64_t there : saves.there)
            if (sanity.settled(there, settle)) settled = std::max(settled, there);
          EXPECT_TRUE(settled == 0 || saves.there.contains(settled)) << s;
        }
        EXPECT_LE(saves.most, static_cast<size_t>(keep + 3)) << "while one is written";
        EXPECT_GE(settled, 2440 - 2 * settle - every) << "newer ones do settle";
      }
}

// Where checkpoints are further apart than they take to settle, no more are there than without.
TEST(Sanity, WhatHasSettledMakesRoom) {
  Saves saves{.every = 250, .keep = 1, .settle = 100};
  Sanity sanity;
  for (int64_t s = 1; s <= 2000; s++) {
    sanity.see(s, false, 3);
    saves.after_step(sanity);
  }
  EXPECT_EQ(saves.most, 2u);
  EXPECT_EQ(saves.there, (Steps{1750, 2000}));
}

// Whatever steps are saved, in trouble or not: of each multiple the first at or after it is there for good, beside it
// no more than without a history, and still the newest that has settled.
TEST(Sanity, AHistoryIsKeptForGood) {
  for (const int64_t keep_every : {40, 300, 5000})
    for (const int64_t between : {9, 40, 700}) {  // steps between saves, on average: as by time
      SCOPED_TRACE(::testing::Message() << keep_every << " " << between);
      Saves saves{.every = 1, .keep = 2, .settle = 30, .keep_every = keep_every};
      Sanity sanity;
      Steps saved;
      int64_t settled = 0;  // the newest that ever was
      for (int64_t s = 1, random = 7; s <= 2000; s++) {
        sanity.see(s, s % 400 > 370, 3);
        random = random * 1103515245 % 2147483647;
        if (random % between != 0) continue;
        saves.save(sanity);
        saved.insert(s);
        for (const int64_t there : saves.there)
          if (sanity.settled(there, saves.settle)) settled = std::max(settled, there);
        EXPECT_TRUE(settled == 0 || saves.there.contains(settled)) << s;
      }
      Steps history;
      for (int64_t multiple = keep_every; multiple <= 2000; multiple += keep_every)
        if (const auto first = saved.lower_bound(multiple); first != saved.end()) history.insert(*first);
      EXPECT_TRUE(std::includes(saves.there.begin(), saves.there.end(), history.begin(), history.end()));
      EXPECT_LE(saves.there.size(), history.size() + 4) << "two to keep, two to go back to";
    }
}

TEST(Sanity, GoesBackToWhatHasSettledBeforeTheTrouble) {
  Sanity sanity;
  sane_until(sanity, 250);
  bad_until(sanity, 252);
  const LastWeights spoilt{.since = 250, .sane = false};
  EXPECT_EQ(checkpoint_to_go_back_to({50, 100, 150, 200, 250, 251}, sanity, 100, spoilt), 150);
  EXPECT_EQ(checkpoint_to_go_back_to({50, 100, 150, 200, 250, 251}, sanity, 0, spoilt), 200)
      << "250 has the same weights";
  EXPECT_EQ(checkpoint_to_go_back_to({200, 240, 251}, sanity, 100, spoilt), 200) << "none has settled";
  EXPECT_EQ(checkpoint_to_go_back_to({250, 251}, sanity, 100, spoilt), std::nullopt);
  EXPECT_EQ(checkpoint_to_go_back_to({}, sanity, 100, spoilt), std::nullopt);
  // Where it is not the weights, no step is lost.
  const LastWeights sane{.since = 250, .sane = true};
  EXPECT_EQ(checkpoint_to_go_back_to({50, 100, 150, 200, 250, 251}, sanity, 100, sane), 250);
  EXPECT_EQ(checkpoint_to_go_back_to({50, 100, 150, 200, 251, 252}, sanity, 100, sane), 251) << "it has them as well";
  EXPECT_EQ(checkpoint_to_go_back_to({50, 100, 150, 200}, sanity, 100, sane), 150);
  EXPECT_EQ(checkpoint_to_go_back_to({}, sanity, 100, sane), std::nullopt);
  // Losses that were in trouble before one step was skipped.
  Sanity ruined;
  sane_until(ruined, 50);
  for (int64_t s = 51; s <= 60; s++) ruined.see(s, false, 1e5);
  bad_until(ruined, 61);
  EXPECT_EQ(checkpoint_to_go_back_to({20, 40, 55}, ruined, 100, {.since = 60, .sane = false}), 20);
  EXPECT_FALSE(ruined.is_sane(1e5));
  EXPECT_TRUE(ruined.is_sane(3.5));
  // An earlier trouble, and one too short a time ago.
  Sanity twice;
  sane_until(twice, 100);
  bad_until(twice, 101);
  sane_until(twice, 150);
  bad_until(twice, 151);
  const LastWeights last{.since = 150, .sane = false};
  EXPECT_EQ(checkpoint_to_go_back_to({10, 90, 110, 140}, twice, 50, last), 10) << "the only one that had settled";
  EXPECT_EQ(checkpoint_to_go_back_to({90, 110, 140}, twice, 50, last), 110);
}

}  // namespace
}  // namespace megalith
