#include "kernels/tensor/interval.h"

#include <algorithm>

namespace megalith {

Interval intersect(Interval a, Interval b) {
  const Interval r{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return r.begin < r.end ? r : Interval{};
}

Interval part_of(Interval whole, int64_t index, int64_t parts) {
  const int64_t each = whole.size() / parts, longer = whole.size() % parts;
  const int64_t begin = whole.begin + index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

std::vector<Interval> gaps(std::vector<Interval> covered, int64_t numel) {
  std::sort(covered.begin(), covered.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> missing;
  int64_t position = 0;
  for (const Interval part : covered) {
    if (part.begin > position) missing.push_back({position, std::min(part.begin, numel)});
    position = std::max(position, part.end);
    if (position >= numel) return missing;
  }
  if (position < numel) missing.push_back({position, numel});
  return missing;
}

}  // namespace megalith
