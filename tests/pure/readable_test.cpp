// Numbers for people.
#include "trainer/planner/readable.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(Readable, HasNoPowersOfTen) {
  EXPECT_EQ(readable(0), "0");
  EXPECT_EQ(readable(1.948e-5), "0.00001948");
  EXPECT_EQ(readable(0.0123456), "0.01235");
  EXPECT_EQ(readable(5.5774), "5.577");
  EXPECT_EQ(readable(999.94), "999.9");
  EXPECT_EQ(readable(999.96), "1,000");
  EXPECT_EQ(readable(47008.2), "47,008");
  EXPECT_EQ(readable(-1234567), "-1,234,567");
  EXPECT_EQ(readable(-123456), "-123,456");
  EXPECT_EQ(readable(1e15), "1,000,000,000,000,000");
}

TEST(Readable, NamesThousands) {
  EXPECT_EQ(in_words(12), "12");
  EXPECT_EQ(in_words(3e11), "300 billion");
  EXPECT_EQ(in_words(3.37e10), "33.7 billion");
  EXPECT_EQ(in_words(5e15), "5,000 trillion");
  EXPECT_EQ(with_prefix(4.739e16, "FLOP"), "47.39 PFLOP");
  EXPECT_EQ(with_prefix(500, "B"), "500 B");
  EXPECT_EQ(with_prefix(999999, "B"), "1 MB");
}

}  // namespace
}  // namespace megalith
