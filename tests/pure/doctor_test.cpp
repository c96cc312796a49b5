// Who is to blame when ranks wait for one another: a machine of ranks that keep real pages of a flight recorder, with
// every fault at every place of a step, and what the doctor makes of their pages.
#include "trainer/doctor/diagnosis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace megalith {
namespace {

enum class Plant {
  nothing,
  skips,        // leaves out a call
  other_call,   // makes another in its place
  other_bytes,  //
  comes_late,   // and has not come yet
  stops,        // in the call
  dies,         // before it
  leaves,       // with its work done, before it
};

// A step of one rank: (name of the group, call, bytes, peer).
struct PlannedCall {
  std::string group;
  Transfer call;
  int64_t bytes;
  int peer = -1;
};

// Ranks in pairs (0 1), (2 3), ... for tensors, in the two classes of even and odd ranks for shards, and all.
class PlantedRanks {
 public:
  // mixes: whether a transfer ends although its members do not agree on it.
  PlantedRanks(int size, bool mixes) : size_(size), mixes_(mixes) {
    for (int r = 0; r < size; r++) {
      Rank& rank = ranks_.emplace_back();
      rank.page = std::make_unique<RecorderPage>();
      rank.page->rank = r;
      rank.page->size = size;
      rank.page->now = 1;
      rank.recorder = std::make_unique<FlightRecorder>(*rank.page);
      add(r, session_group, 1, r, size);
      add(r, "world", 2, r, size);
      add(r, "tensor", 100 + r / 2, r % 2, 2);
      if (size > 2) add(r, "shard", 200 + r % 2, r / 2, size / 2);
    }
  }

  // Every rank makes these calls in a step; rank 0's messages go to rank 1 of its pair.
  std::vector<PlannedCall> program(int rank) const {
    std::vector<PlannedCall> all;
    for (int layer = 0; layer < 3; layer++) {
      if (size_ > 2) all.push_back({"shard", Transfer::all_gather, 4096});
      all.push_back({"tensor", Transfer::all_reduce, 512});
      all.push_back({"tensor", Transfer::all_reduce, 512});
    }
    all.push_back({"tensor", rank % 2 == 0 ? Transfer::send : Transfer::recv, 64, 1 - rank % 2});
    if (size_ > 2) all.push_back({"shard", Transfer::reduce_scatter, 4096});
    all.push_back({"world", Transfer::all_reduce, 80});
    return all;
  }

  // Until nobody can go on. The rank of the plant meets it at the `at`-th instruction of that step.
  void run(Plant plant, int victim, int64_t step, size_t at, int64_t steps) {
    plant_ = plant;
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < size_; r++) moved = advance(r, victim, step, at, steps) || moved;
      tick();
    }
    for (int t = 0; t < 100; t++) tick();
  }

  std::vector<RankDump> seen() const {
    std::vector<RankDump> all;
    for (const Rank& rank : ranks_) {
      all.push_back(read_page(*rank.page));
      all.back().state = rank.state;
    }
    return all;
  }
  bool done(int64_t steps) const {
    return std::ranges::all_of(ranks_, [&](const Rank& r) { return r.step > steps; });
  }
  RecordedGroup& group(int rank, const std::string& name) { return *ranks_[static_cast<size_t>(rank)].groups.at(name); }
  void tick() {
    for (const Rank& rank : ranks_)
      if (rank.state == RankState::running) rank.page->now += 10;
  }

 private:
  struct Rank {
    std::unique_ptr<RecorderPage> page;
    std::unique_ptr<FlightRecorder> recorder;
    std::map<std::string, std::unique_ptr<RecordedGroup>> groups;
    RankState state = RankState::running;
    int64_t step = 1;
    size_t at = 0;
    std::optional<PlannedCall> in = {};
    RecordedCall call = {};
    std::map<std::pair<std::string, bool>, std::vector<PlannedCall>> made = {};  // messages apart
    bool met = false, late = false;
  };

  void add(int r, const std::string& name, uint64_t id, int index, int size) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    rank.groups[name] = std::make_unique<RecordedGroup>(*rank.recorder, id, name, index, size);
  }

  void begin(Rank& rank, const PlannedCall& i) {
    rank.in = i;
    rank.made[{i.group, is_message(i.call)}].push_back(i);
    rank.call = rank.groups.at(i.group)->begin(i.call, i.bytes, i.peer);
  }

  bool advance(int r, int victim, int64_t step, size_t at, int64_t steps) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.state != RankState::running || rank.late || (rank.step > steps && !rank.in)) return false;
    if (rank.in) {
      if (!all_there(r)) return false;
      rank.call.ended();
      rank.in.reset();
      return true;
    }
    rank.recorder->begin_step(rank.step);
    const std::vector<PlannedCall> all = program(r);
    PlannedCall next = all[rank.at];
    const bool here = plant_ != Plant::nothing && r == victim && rank.step == step && rank.at == at && !rank.met;
    if (++rank.at == all.size()) rank.step++, rank.at = 0;
    if (!here) return begin(rank, next), true;
    rank.met = true;
    switch (plant_) {
      case Plant::skips: return true;
      case Plant::other_call:
        next.call = Transfer::barrier;
        next.peer = -1;
        break;
      case Plant::other_bytes: next.bytes /= 2; break;
      case Plant::comes_late: rank.late = true; return true;
      case Plant::dies: rank.state = RankState::dead; return true;
      case Plant::stops:
        begin(rank, next);
        rank.state = RankState::stopped;
        return true;
      case Plant::leaves:
        rank.state = RankState::left;
        rank.groups.clear();
        return true;
      default: break;
    }
    return begin(rank, next), true;
  }

  // Returns whether the other members have come to the call that this one is in.
  bool all_there(int r) const {
    const Rank& mine = ranks_[static_cast<size_t>(r)];
    const bool message = is_message(mine.in->call);
    const size_t number = mine.made.at({mine.in->group, message}).size();
    for (int m = 0; m < size_; m++) {
      if (m == r || !share(mine.in->group, r, m)) continue;
      const Rank& other = ranks_[static_cast<size_t>(m)];
      const auto made = other.made.find({mine.in->group, message});
      if (made == other.made.end() || made->second.size() < number || other.state == RankState::stopped) return false;
      const PlannedCall& theirs = made->second[number - 1];
      if (!mixes_ && theirs.bytes != mine.in->bytes) return false;
      if (!mixes_ && !message && theirs.call != mine.in->call) return false;
    }
    return true;
  }
  static bool share(const std::string& group, int a, int b) {
    return group == "tensor" ? a / 2 == b / 2 : group == "shard" ? a % 2 == b % 2 : true;
  }

  int size_;
  bool mixes_;
  Plant plant_ = Plant::nothing;
  std::vector<Rank> ranks_;
};

std::string case_name(int size, int victim, size_t at, bool mixes, const Diagnosis& found) {
  return fmt::format("{} ranks, rank {} at instruction {}{}: {}: {}", size, victim, at, mixes ? ", mixed" : "",
                     name_of(found.kind), found.text);
}

constexpr int64_t planted_step = 4;

Diagnosis after(Plant plant, int size, int victim, size_t at, bool mixes) {
  PlantedRanks ranks(size, mixes);
  ranks.run(plant, victim, planted_step, at, 6);
  return diagnose(ranks.seen(), 0.5);
}

void expect_blamed(Plant plant, const std::set<Diagnosis::Kind>& kinds, bool mixes = false) {
  for (const int size : {2, 4, 8})
    for (const int victim : {0, size - 1})
      for (size_t at = 0; at < PlantedRanks(size, false).program(0).size(); at++) {
        const Diagnosis found = after(plant, size, victim, at, mixes);
        const std::string what = case_name(size, victim, at, mixes, found);
        EXPECT_TRUE(kinds.contains(found.kind)) << what;
        EXPECT_EQ(found.culprits, std::vector{victim}) << what;
        EXPECT_NEAR(static_cast<double>(found.step), planted_step, 1) << what;
        EXPECT_TRUE(found.text.starts_with(fmt::format("rank {} (process", victim))) << what;
      }
}

TEST(Doctor, NothingIsFoundWhereNothingIsWrong) {
  for (const int size : {2, 4, 8}) {
    PlantedRanks ranks(size, false);
    ranks.run(Plant::nothing, 0, 0, 0, 6);
    EXPECT_TRUE(ranks.done(6));
    EXPECT_EQ(diagnose(ranks.seen(), 0).kind, Diagnosis::Kind::none);
  }
}

TEST(Doctor, ASkippedCall) {
  expect_blamed(Plant::skips, {Diagnosis::Kind::skipped, Diagnosis::Kind::another_call, Diagnosis::Kind::another_size});
  expect_blamed(Plant::skips, {Diagnosis::Kind::skipped, Diagnosis::Kind::another_call, Diagnosis::Kind::another_size},
                true);
}
TEST(Doctor, AnotherCall) {
  expect_blamed(Plant::other_call, {Diagnosis::Kind::another_call, Diagnosis::Kind::skipped});
}
TEST(Doctor, OtherBytes) { expect_blamed(Plant::other_bytes, {Diagnosis::Kind::another_size}); }
TEST(Doctor, ARankThatHasNotCome) { expect_blamed(Plant::comes_late, {Diagnosis::Kind::busy}); }
TEST(Doctor, AStoppedRank) { expect_blamed(Plant::stops, {Diagnosis::Kind::stopped}); }
TEST(Doctor, ADeadRank) { expect_blamed(Plant::dies, {Diagnosis::Kind::died}); }
TEST(Doctor, ARankThatHasLeft) { expect_blamed(Plant::leaves, {Diagnosis::Kind::left}); }

// Whoever started the ranks ends the others when one has given up.
TEST(Doctor, WhoGaveUpIsNamedBeforeThoseThatDiedOfIt) {
  PlantedRanks ranks(4, false);
  ranks.group(0, "world").begin(Transfer::all_reduce, 80);
  for (int t = 0; t < 20; t++) ranks.tick();
  std::vector<RankDump> known = ranks.seen();
  known[1].state = known[3].state = RankState::dead;
  EXPECT_EQ(diagnose(known, 0.5).kind, Diagnosis::Kind::died);
  known[2].state = RankState::gave_up;
  const Diagnosis found = diagnose(known, 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::gave_up);
  EXPECT_EQ(found.culprits, std::vector{2});
}

// In the first step there is no step before to compare to: a majority is right, and two ranks are both named.
TEST(Doctor, WithoutHistoryTheMajorityIsRight) {
  PlantedRanks four(4, false), two(2, false);
  const size_t last = four.program(0).size() - 1;
  four.run(Plant::other_bytes, 2, 1, last, 3);
  EXPECT_EQ(diagnose(four.seen(), 0.5).culprits, std::vector{2});
  two.run(Plant::other_bytes, 1, 1, two.program(0).size() - 1, 3);
  const Diagnosis found = diagnose(two.seen(), 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::desync);
  EXPECT_EQ(found.culprits, (std::vector{0, 1}));
  EXPECT_NE(found.text.find("rank 0 in all_reduce 1 of world (80 bytes, step 1)"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find("rank 1 in all_reduce 1 of world (40 bytes, step 1)"), std::string::npos) << found.text;
}

// Rank 0 waits for rank 1 in their pair, and all others for rank 0.
TEST(Doctor, OfACircleTheLargestGroupHasTheMajority) {
  PlantedRanks ranks(8, false);
  ranks.group(0, "tensor").begin(Transfer::all_reduce, 512);
  ranks.tick();
  for (int r = 1; r < 8; r++) ranks.group(r, "world").begin(Transfer::all_reduce, 80);
  for (int t = 0; t < 20; t++) ranks.tick();
  const Diagnosis found = diagnose(ranks.seen(), 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::skipped) << found.text;
  EXPECT_EQ(found.culprits, std::vector{0});
}

TEST(Doctor, SaysWhoWaitsForWhomAndWhere) {
  const Diagnosis found = after(Plant::comes_late, 4, 2, 10, false);
  EXPECT_EQ(
      found.text,
      "rank 2 (process 0 on ) is not waiting for others: it is computing, reading or writing, or slow; rank 2 is "
      "on step 4, after send 4 to 1 of tensor (64 bytes, step 4); ranks 0, 1, 3 wait for it, rank 0 for 10.4 s in "
      "reduce_scatter 16 of shard (4096 bytes, step 4)");
}

TEST(Doctor, ACallThatAllAreInIsNobodysFault) {
  PlantedRanks ranks(4, false);
  for (int r = 0; r < 4; r++) ranks.group(r, "world").begin(Transfer::all_reduce, 80);
  for (int t = 0; t < 20; t++) ranks.tick();
  const Diagnosis found = diagnose(ranks.seen(), 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::stuck);
  EXPECT_EQ(found.culprits.size(), 4u);
}

// Some transfers move only while their ranks wait.
TEST(Doctor, WhoHasBegunAndDoesNotWaitIsBusy) {
  PlantedRanks ranks(4, false);
  for (int r = 0; r < 4; r++) {
    const RecordedCall call = ranks.group(r, "world").begin(Transfer::all_reduce, 80);
    if (r == 3) call.under_way();
  }
  for (int t = 0; t < 20; t++) ranks.tick();
  const Diagnosis found = diagnose(ranks.seen(), 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::busy);
  EXPECT_EQ(found.culprits, std::vector{3});
}

TEST(Doctor, RanksOfAnotherNodeMayBeUnseen) {
  PlantedRanks ranks(4, false);
  for (const int r : {0, 1}) ranks.group(r, "world").begin(Transfer::all_reduce, 80);
  for (int t = 0; t < 20; t++) ranks.tick();
  std::vector<RankDump> known = ranks.seen();
  for (const size_t r : {2u, 3u}) known[r] = {.rank = static_cast<int>(r)};
  const Diagnosis found = diagnose(known, 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::unseen);
  EXPECT_EQ(found.culprits, (std::vector{2, 3}));
}

TEST(Doctor, ARankThatIsUnseenIsNotToBlameInGroupsOfOthers) {
  PlantedRanks ranks(4, false);
  for (const int r : {0, 1}) ranks.group(r, "tensor").begin(Transfer::all_reduce, 512);
  for (int t = 0; t < 20; t++) ranks.tick();
  std::vector<RankDump> known = ranks.seen();
  for (const size_t r : {2u, 3u}) known[r] = {.rank = static_cast<int>(r)};
  const Diagnosis found = diagnose(known, 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::stuck);
  EXPECT_EQ(found.culprits, (std::vector{0, 1}));
}

// Messages that rank 1 received from rank 0 do not count as those that it sends there.
TEST(Doctor, MessagesCountByTheirDirection) {
  PlantedRanks ranks(2, false);
  for (int n = 0; n < 2; n++)
    for (int r = 0; r < 2; r++)
      ranks.group(r, "tensor").begin(r == 0 ? Transfer::send : Transfer::recv, 64, 1 - r).ended();
  ranks.group(0, "tensor").begin(Transfer::recv, 64, 1);
  for (int t = 0; t < 20; t++) ranks.tick();
  const Diagnosis found = diagnose(ranks.seen(), 0.5);
  EXPECT_EQ(found.kind, Diagnosis::Kind::busy);
  EXPECT_EQ(found.culprits, std::vector{1});
}

TEST(Doctor, TheLongestWaitCounts) {
  PlantedRanks two(4, false), one(4, false);
  for (const int r : {2, 3, 0, 1}) {
    two.group(r, "tensor").begin(Transfer::all_reduce, 512);
    if (r != 2) one.group(r, "world").begin(Transfer::all_reduce, 80);
    for (int t = 0; t < 20; t++) two.tick(), one.tick();
  }
  EXPECT_EQ(diagnose(two.seen(), 0.5).culprits, (std::vector{2, 3})) << "of two groups in which all wait";
  const std::string text = diagnose(one.seen(), 0.5).text;
  EXPECT_NE(text.find("ranks 0, 1, 3 wait for it, rank 3 for"), std::string::npos) << text;
}

TEST(Doctor, AShortWaitIsNone) {
  PlantedRanks ranks(2, false);
  ranks.group(1, "world").begin(Transfer::all_reduce, 80);
  for (int t = 0; t < 4; t++) ranks.tick();
  EXPECT_EQ(diagnose(ranks.seen(), 0.5).kind, Diagnosis::Kind::none);
  ranks.tick();
  EXPECT_EQ(diagnose(ranks.seen(), 0.5).kind, Diagnosis::Kind::busy);
}

}  // namespace
}  // namespace megalith
