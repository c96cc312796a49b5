#include "trainer/report/thinning.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/check.h"

namespace megalith {

std::vector<Point> thinned(const std::vector<double>& x, const std::vector<double>& y, double begin, double end,
                           int columns) {
  CHECK(x.size() == y.size() && columns > 0, "{} and {} values to be thinned to {} columns", x.size(), y.size(),
        columns);
  std::vector<Point> kept;
  const auto column_of = [&](double at) {
    const double share = end > begin ? (at - begin) / (end - begin) : 0;
    return std::min(columns - 1, static_cast<int>(share * columns));
  };
  std::vector<size_t> seen;  // indices of the column at hand
  const auto close = [&] {
    if (seen.empty()) return;
    const auto [low, high] = std::ranges::minmax_element(seen, {}, [&](size_t i) { return y[i]; });
    std::array<size_t, 4> four{seen.front(), *low, *high, seen.back()};
    std::ranges::sort(four);
    const auto end_of_four = std::unique(four.begin(), four.end());
    for (auto i = four.begin(); i != end_of_four; ++i) kept.push_back({x[*i], y[*i]});
    seen.clear();
  };
  int column = -1;
  for (size_t i = 0; i < x.size(); i++) {
    if (!std::isfinite(y[i]) || !(x[i] >= begin && x[i] <= end)) continue;
    if (const int its = column_of(x[i]); its != column) {
      close();
      column = its;
    }
    seen.push_back(i);
  }
  close();
  return kept;
}

std::vector<double> binned(const std::vector<double>& y) {
  const size_t bins = std::min<size_t>(y.size(), 160);
  std::vector<double> means;
  for (size_t b = 0; b < bins; b++) {
    const size_t begin = b * y.size() / bins, end = (b + 1) * y.size() / bins;
    double sum = 0;
    for (size_t i = begin; i < end; i++) sum += y[i];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

std::vector<double> smoothed(const std::vector<double>& y, size_t around) {
  std::vector<double> sum(y.size() + 1, 0), number(y.size() + 1, 0);  // of the values before
  for (size_t i = 0; i < y.size(); i++) {
    const bool counts = std::isfinite(y[i]);
    sum[i + 1] = sum[i] + (counts ? y[i] : 0);
    number[i + 1] = number[i] + (counts ? 1 : 0);
  }
  std::vector<double> all;
  all.reserve(y.size());
  for (size_t i = 0; i < y.size(); i++) {
    const size_t each = std::min(around, i), begin = i - each, end = std::min(y.size(), i + each + 1);
    all.push_back(std::isfinite(y[i]) ? (sum[end] - sum[begin]) / (number[end] - number[begin]) : y[i]);
  }
  return all;
}

}  // namespace megalith
