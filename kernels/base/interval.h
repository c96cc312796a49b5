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

Interval intersect(Interval a, Interval b);  // {0, 0} where they share nothing
// Part `index` of `parts` when `whole` is dealt out evenly; the first parts are longer by one where it does not divide.
Interval part_of(Interval whole, int64_t index, int64_t parts);
// The elements of [0, numel) that no interval covers, ascending and disjoint. Intervals may overlap and be unordered.
std::vector<Interval> gaps(std::vector<Interval> covered, int64_t numel);

}  // namespace megalith
