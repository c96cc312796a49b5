// Fewer values that draw the same.
#pragma once

#include <cstddef>
#include <vector>

namespace megalith {

// Stretches of `size` values each, the last of fewer: as few to a bin as make at most `most_bins`. What is not finite
// counts for nothing; a bin of nothing else is NaN.
struct Bins {
  std::size_t size = 1;
  std::vector<double> mean = {}, low = {}, high = {};
  std::vector<double> middle = {};  // the value in the middle of each bin: of what rises, where the bin is
};
constexpr std::size_t most_bins = 2000;
Bins in_bins(const std::vector<double>& y);

// The means of as many stretches of nearly equal length as there are values, or 160 where there are more.
std::vector<double> binned(const std::vector<double>& y);

}  // namespace megalith
