// Intervals of elements, bytes or sequences: [begin, end).
#pragma once

#include <cstdint>
#include <vector>

namespace megalith {

struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

Interval intersect(Interval a, Interval b);  // {0, 0} if they are disjoint
// Returns part `index` of `whole` divided evenly into `parts`; the first ones are longer by one if it does not divide.
Interval part_of(Interval whole, int64_t index, int64_t parts);
// Returns the elements of [0, numel) that no interval covers, ascending and disjoint. Intervals may overlap.
std::vector<Interval> gaps(std::vector<Interval> covered, int64_t numel);

}  // namespace megalith
