// A line is cut to what has room on a terminal.
#include "trainer/machine/terminal.h"

#include <gtest/gtest.h>

#include "trainer/train/progress_bar.h"

namespace megalith {
namespace {

TEST(Terminal, PartsLeaveInTheirOrder) {
  const std::vector<LinePart> parts{{"step 7"}, {"norm 1.5", 2}, {"lr 3e-4", 3}, {"9 tokens/s", 1}, {"ETA 7m32s"}};
  EXPECT_EQ(fitted(parts, 100), "step 7  norm 1.5  lr 3e-4  9 tokens/s  ETA 7m32s");
  EXPECT_EQ(fitted(parts, 48), "step 7  norm 1.5  lr 3e-4  9 tokens/s  ETA 7m32s");
  EXPECT_EQ(fitted(parts, 47), "step 7  norm 1.5  9 tokens/s  ETA 7m32s");
  EXPECT_EQ(fitted(parts, 30), "step 7  9 tokens/s  ETA 7m32s");
  EXPECT_EQ(fitted(parts, 20), "step 7  ETA 7m32s");
  EXPECT_EQ(fitted(parts, 5), "step 7  ETA 7m32s") << "these stay";
  EXPECT_EQ(fitted({}, 5), "");
}

// The time that is left is never cut: "ETA 7" was 7m32s.
TEST(Terminal, TheBarGivesUpItsLengthAndThenParts) {
  const std::vector<LinePart> parts{{"step 123456/200000"}, {"loss 10.1234"}, {"1234567 tokens/s", 1}, {"ETA 123h45m"}};
  for (size_t columns = 66; columns <= 200; columns++) {
    const std::string line = bar_line(0.5, parts, columns);
    EXPECT_LE(line.size(), columns) << line;
    EXPECT_TRUE(line.ends_with("  ETA 123h45m")) << line;
    EXPECT_NE(line.find("step 123456/200000  loss 10.1234  "), std::string::npos) << line;
    EXPECT_EQ(line.find("tokens/s") != std::string::npos, columns >= 84) << columns << ": " << line;
  }
  EXPECT_EQ(bar_line(0.5, {{"a"}}, 80), "[" + std::string(16, '=') + std::string(16, ' ') + "]  50.0%  a");
  EXPECT_EQ(bar_line(2, {{"a"}}, 22), "[==========] 100.0%  a");
  for (size_t columns = 0; columns < 30; columns++) EXPECT_LE(bar_line(1, parts, columns).size(), columns);
}

}  // namespace
}  // namespace megalith
