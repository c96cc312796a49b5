// Fewer points that draw the same.
#include "trainer/report/thinning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace megalith {
namespace {

std::vector<double> counting(size_t n) {
  std::vector<double> x(n);
  std::iota(x.begin(), x.end(), 1.0);
  return x;
}

TEST(Thinning, FewStayAsTheyAre) {
  const std::vector<Point> all = {{1, 5}, {2, 7}, {3, 6}};
  EXPECT_EQ(thinned({1, 2, 3}, {5, 7, 6}, 0, 3, 100), all);
  EXPECT_EQ(thinned({1, 2, 3}, {5, 7, 6}, 0, 3, 1), all);
  EXPECT_EQ(thinned({1, 2, 3}, {5, 5, 5}, 0, 3, 1).size(), 2u) << "nothing is there twice";
  EXPECT_TRUE(thinned({}, {}, 0, 1, 10).empty());
}

TEST(Thinning, ASpikeOfOneStepAmongAMillionStays) {
  const std::vector<double> x = counting(1000000);
  std::vector<double> y(x.size(), 2.0);
  y[123456] = 50;
  y[765432] = -3;
  const std::vector<Point> all = thinned(x, y, 0, 1e6, 400);
  EXPECT_LE(all.size(), 4u * 400);
  EXPECT_TRUE(std::ranges::find(all, Point{123457, 50}) != all.end());
  EXPECT_TRUE(std::ranges::find(all, Point{765433, -3}) != all.end());
}

// In each column the same lowest, highest, first and last value as before.
TEST(Thinning, DrawsTheSameColumns) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise;
  constexpr int columns = 37;
  const std::vector<double> x = counting(5000);
  std::vector<double> y(x.size());
  for (double& v : y) v = noise(random);
  const std::vector<Point> all = thinned(x, y, 0, 5000, columns);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Point::x));
  for (int c = 0; c < columns; c++) {
    const auto in_column = [&](double at) { return std::min(columns - 1, static_cast<int>(at / 5000 * columns)) == c; };
    std::vector<double> before, after;
    for (size_t i = 0; i < x.size(); i++)
      if (in_column(x[i])) before.push_back(y[i]);
    for (const Point& p : all)
      if (in_column(p.x)) after.push_back(p.y);
    ASSERT_FALSE(after.empty());
    EXPECT_LE(after.size(), 4u);
    EXPECT_EQ(after.front(), before.front());
    EXPECT_EQ(after.back(), before.back());
    EXPECT_EQ(std::ranges::minmax(after).min, std::ranges::minmax(before).min);
    EXPECT_EQ(std::ranges::minmax(after).max, std::ranges::minmax(before).max);
  }
}

TEST(Thinning, WhatIsNotFiniteIsLeftOut) {
  EXPECT_EQ(thinned({1, 2, 3, 4}, {NAN, 1, INFINITY, 2}, 0, 4, 10), (std::vector<Point>{{2, 1}, {4, 2}}));
  EXPECT_EQ(thinned({1, 2, 3, 4}, {5, 6, 7, 8}, 2, 3, 10), (std::vector<Point>{{2, 6}, {3, 7}}))
      << "what is outside too";
}

TEST(Binning, IsTheMeanOfStretches) {
  EXPECT_EQ(binned({3, 1, 4}), (std::vector<double>{3, 1, 4}));
  EXPECT_TRUE(binned({}).empty());
  const std::vector<double> bins = binned(counting(400));  // of two or three
  ASSERT_EQ(bins.size(), 160u);
  EXPECT_EQ(bins.front(), 1.5);
  EXPECT_EQ(bins.back(), 399);
}

TEST(Smoothing, IsTheMeanAround) {
  EXPECT_EQ(smoothed({3, 1, 4}, 0), (std::vector<double>{3, 1, 4}));
  EXPECT_EQ(smoothed({3, 0, 6, 3, 0}, 1), (std::vector<double>{3, 3, 3, 3, 1.5}));
  EXPECT_EQ(smoothed({1, 2, 3, 4, 5, 6}, 9), (std::vector<double>{1, 2, 3, 3.5, 3.5, 3.5}))
      << "as many on both sides, but at the end";
  const std::vector<double> gap = smoothed({1, NAN, 3, 5}, 1);
  EXPECT_TRUE(std::isnan(gap[1]));
  EXPECT_EQ(gap[2], 4);
}

}  // namespace
}  // namespace megalith
