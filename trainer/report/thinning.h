// Fewer points that draw the same: of the points in a column of pixels the first, the lowest, the highest and the last,
// so that a spike of one step among a million stays to be seen (M4: Jugel and others, VLDB 2014).
#pragma once

#include <cstddef>
#include <vector>

namespace megalith {

struct Point {
  double x, y;
  bool operator==(const Point&) const = default;
};

// x rises; what is not finite is left out. At most four points for each of `columns` equal parts of [begin, end], in
// their order; those outside are left out.
std::vector<Point> thinned(const std::vector<double>& x, const std::vector<double>& y, double begin, double end,
                           int columns);

// The means of as many stretches of nearly equal length as there are values, or 160 where there are more.
std::vector<double> binned(const std::vector<double>& y);

// The mean of each value and up to `around` on either side of it: at the beginning, where a loss falls fast, as many on
// both; at the end as many as there are, so that the last mean is not the last value. What is not finite stays and
// counts for nothing.
std::vector<double> smoothed(const std::vector<double>& y, std::size_t around);

}  // namespace megalith
