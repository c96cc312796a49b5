// Fewer values that draw the same.
#include "trainer/report/thinning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace megalith {
namespace {

std::vector<double> counting(size_t n) {
  std::vector<double> x(n);
  std::iota(x.begin(), x.end(), 1.0);
  return x;
}

TEST(Bins, FewValuesStayAsTheyAre) {
  const Bins bins = in_bins({5, 7, 6});
  EXPECT_EQ(bins.size, 1u);
  for (const auto* values : {&bins.mean, &bins.low, &bins.high, &bins.middle})
    EXPECT_EQ(*values, (std::vector<double>{5, 7, 6}));
  EXPECT_TRUE(in_bins({}).mean.empty());
  EXPECT_EQ(in_bins(counting(most_bins)).size, 1u);
}

TEST(Bins, ASpikeOfOneStepAmongAMillionStays) {
  std::vector<double> y(999999, 2.0);
  y[123456] = 52;
  y[765432] = -3;
  const Bins bins = in_bins(y), steps = in_bins(counting(y.size()));
  ASSERT_EQ(bins.size, 500u);
  ASSERT_EQ(bins.mean.size(), most_bins);
  EXPECT_EQ(bins.high[123456 / 500], 52);
  EXPECT_EQ(bins.mean[123456 / 500], 2.1);
  EXPECT_EQ(bins.low[765432 / 500], -3);
  EXPECT_EQ(steps.middle[1], 751);
  EXPECT_EQ(steps.middle.back(), 999750) << "the last bin is one short";
}

TEST(Bins, WhatIsNotFiniteCountsForNothing) {
  std::vector<double> y(2 * most_bins, 1.0);
  y[0] = NAN;
  y[2] = y[3] = INFINITY;
  const Bins bins = in_bins(y);
  EXPECT_EQ(bins.mean[0], 1);
  EXPECT_EQ(bins.low[0], 1);
  EXPECT_TRUE(std::isnan(bins.mean[1]));
  EXPECT_TRUE(std::isnan(bins.high[1]));
}

TEST(Binning, IsTheMeanOfStretches) {
  EXPECT_EQ(binned({3, 1, 4}), (std::vector<double>{3, 1, 4}));
  EXPECT_TRUE(binned({}).empty());
  const std::vector<double> bins = binned(counting(400));  // of two or three
  ASSERT_EQ(bins.size(), 160u);
  EXPECT_EQ(bins.front(), 1.5);
  EXPECT_EQ(bins.back(), 399);
}

}  // namespace
}  // namespace megalith
