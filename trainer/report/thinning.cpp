#include "trainer/report/thinning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace megalith {

Bins in_bins(const std::vector<double>& y) {
  Bins bins;
  bins.size = std::max<size_t>(1, (y.size() + most_bins - 1) / most_bins);
  constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
  for (size_t begin = 0; begin < y.size(); begin += bins.size) {
    const size_t end = std::min(y.size(), begin + bins.size);
    double sum = 0, low = nothing, high = nothing;
    size_t number = 0;
    for (size_t i = begin; i < end; i++) {
      if (!std::isfinite(y[i])) continue;
      sum += y[i];
      number++;
      low = std::fmin(low, y[i]);
      high = std::fmax(high, y[i]);
    }
    bins.mean.push_back(number > 0 ? sum / static_cast<double>(number) : nothing);
    bins.low.push_back(low);
    bins.high.push_back(high);
    bins.middle.push_back(y[begin + (end - begin) / 2]);
  }
  return bins;
}

std::vector<double> binned(const std::vector<double>& y) {
  const size_t bins = std::min<size_t>(y.size(), 160);
  std::vector<double> means;
  for (size_t b = 0; b < bins; b++) {
    const size_t begin = b * y.size() / bins, end = (b + 1) * y.size() / bins;
    const auto bin = std::span(y).subspan(begin, end - begin);
    means.push_back(std::accumulate(bin.begin(), bin.end(), 0.0) / static_cast<double>(bin.size()));
  }
  return means;
}

}  // namespace megalith
