// Which steps get a line.
#include "trainer/train/line_pace.h"

#include <gtest/gtest.h>

#include <vector>

namespace megalith {
namespace {

// Returns the steps that are told of, where each takes `seconds`.
std::vector<int64_t> told(LinePace pace, int64_t steps, double seconds, int64_t before = 0) {
  std::vector<int64_t> found;
  for (int64_t step = before + 1; step <= before + steps; step++)
    if (pace.due(step, static_cast<double>(step - before) * seconds)) found.push_back(step);
  return found;
}

TEST(LinePace, BySteps) {
  EXPECT_EQ(told({5, 10, 60}, 16, 100), (std::vector<int64_t>{1, 5, 10, 15}));
  EXPECT_EQ(told({5, 10, 60}, 16, 1e-3), (std::vector<int64_t>{1, 5, 10, 15}));
  EXPECT_EQ(told({1, 10, 60}, 3, 1e-3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(told({5, 10, 60}, 9, 1, 7), (std::vector<int64_t>{8, 10, 15})) << "the first after a resume";
}

TEST(LinePace, ByTime) {
  EXPECT_EQ(told({0, 10, 60}, 50, 1), (std::vector<int64_t>{1, 11, 21, 31, 41}));
  EXPECT_EQ(told({0, 10, 60}, 4, 30), (std::vector<int64_t>{1, 2, 3, 4})) << "steps that take longer";
  EXPECT_EQ(told({0, 10, 60}, 2000, 0.06).size(), 12u) << "a run of two minutes";
  EXPECT_EQ(told({0, 5, 5}, 2000, 0.06).size(), 24u) << "on a terminal";
}

TEST(LinePace, ALongRunSaysLess) {
  const size_t day = told({0, 10, 60}, 86400, 1).size(), hour = told({0, 10, 60}, 3600, 1).size();
  EXPECT_GT(hour, 120u);
  EXPECT_LT(hour, 200u);
  EXPECT_NEAR(static_cast<double>(day - hour), 23 * 60, 2) << "a line a minute";
}

}  // namespace
}  // namespace megalith
