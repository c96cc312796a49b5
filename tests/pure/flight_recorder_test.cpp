// The page of a flight recorder: what a rank keeps of its calls and of the groups that it makes them in.
#include "kernels/stream/flight_recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "trainer/doctor/dump.h"

namespace megalith {
namespace {

// The page is of fixed size: what is overwritten is not taken for something else.
TEST(FlightRecorder, KeepsTheLastCalls) {
  const auto page = std::make_unique<RecorderPage>();
  page->now = 1;
  FlightRecorder recorder(*page);
  RecordedGroup group(recorder, 7, "world", 0, 2);
  const auto slots = static_cast<int64_t>(RecorderPage::num_slots);
  const RecordedCall first = group.begin(Transfer::barrier, 0);
  for (int64_t n = 2; n <= slots + 5; n++) group.begin(Transfer::all_reduce, n).ended();
  first.ended();  // whose place has another
  const RankDump dump = read_page(*page);
  ASSERT_EQ(dump.calls.size(), RecorderPage::num_slots);
  EXPECT_EQ(dump.calls.front().number, 6);
  EXPECT_EQ(dump.calls.back().number, slots + 5);
  EXPECT_EQ(dump.calls.back().bytes, slots + 5);
  EXPECT_EQ(dump.groups.front().begun, slots + 5);
}

TEST(FlightRecorder, GroupsComeAndGo) {
  const auto page = std::make_unique<RecorderPage>();
  FlightRecorder recorder(*page);
  for (int round = 0; round < 3; round++) {
    std::vector<std::unique_ptr<RecordedGroup>> many;
    for (uint64_t i = 0; i < RecorderPage::num_groups + 3; i++)
      many.push_back(
          std::make_unique<RecordedGroup>(recorder, i + 1, "a name that is longer than its place in the page", 0, 2));
    EXPECT_EQ(read_page(*page).groups.size(), RecorderPage::num_groups);
    EXPECT_EQ(read_page(*page).groups.front().name, "a name that is longer than ");
    for (const auto& group : many) group->begin(Transfer::barrier, 0).ended();  // one that has no place as well
  }
  EXPECT_TRUE(read_page(*page).groups.empty());
}

TEST(FlightRecorder, PartsOfAGroupHaveIdsOfTheirOwnThatTheirMembersShare) {
  std::vector<std::unique_ptr<RecorderPage>> pages;
  std::vector<std::set<uint64_t>> ids(2);
  for (size_t r = 0; r < 2; r++) {
    pages.push_back(std::make_unique<RecorderPage>());
    FlightRecorder recorder(*pages.back());
    RecordedGroup world(recorder, recorder.next_id(), "world", static_cast<int>(r), 2);
    for (int split = 0; split < 4; split++)
      for (const int color : {0}) ids[r].insert(world.id_of_part(color));
    ids[r].insert(recorder.next_id());
  }
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0].size(), 5u);
}

}  // namespace
}  // namespace megalith
