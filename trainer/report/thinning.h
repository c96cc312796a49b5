// Thins curves for drawing.
#pragma once

#include <cstddef>
#include <vector>

namespace megalith {

// There are at most `most_bins` bins of `size` values, the last with fewer. Values that are not finite are skipped; a
// bin without others is NaN.
struct Bins {
  std::size_t size = 1;
  std::vector<double> mean = {}, low = {}, high = {};
  std::vector<double> middle = {};  // middle value of each bin
};
constexpr std::size_t most_bins = 2000;
Bins in_bins(const std::vector<double>& y);

// Returns the means of at most 160 bins of nearly equal length.
std::vector<double> binned(const std::vector<double>& y);

}  // namespace megalith
