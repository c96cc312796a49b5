#include "kernels/loops/divisor.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/message_of.h"

namespace megalith::test {
namespace {

TEST(Divisor, DividesExactlyUpToItsLimit) {
  for (const int64_t by : {1L, 2L, 3L, 7L, 64L, 100L, 768L, 3072L, 8191L, 14336L, (1L << 24) - 1, (1L << 31) - 1}) {
    const int64_t most = std::numeric_limits<int64_t>::max() / by;
    const Divisor divisor(by, most);
    EXPECT_EQ(divisor.value(), by);
    for (int64_t power = 1; power <= most / 3; power *= 3)
      for (int64_t i : {power - 1, power, power / by * by, power / by * by + by - 1, most - power, most - power % by}) {
        if (i < 0 || i > most) continue;
        ASSERT_EQ(divisor.quotient(i), i / by) << i << " / " << by;
        ASSERT_EQ(divisor.remainder(i), i % by) << i << " % " << by;
      }
  }
}

TEST(Divisor, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { Divisor(1 << 20, (int64_t{1} << 43) - 1); }).value_or(""), "");
  EXPECT_SAYS(message_of([] { Divisor(1 << 20, int64_t{1} << 43); }),
              "indices up to 8796093022208 are divided by 1048576");
  EXPECT_SAYS(message_of([] { Divisor(0, 5); }), "indices up to 5 are divided by 0");
}

}  // namespace
}  // namespace megalith::test
