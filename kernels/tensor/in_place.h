// Converts elements in place to a type of another size, in parts that overwrite no element before it is read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace megalith {

// Calls convert(begin, end) on ranges that cover [0, n), in order. The elements of a range may be converted in any
// order, except those of the range of the first `front`: elements [b, 2b) of the smaller type end where [b, 2b) of the
// larger type, twice the size, begin. The larger type is written from the end.
template <class F>
void convert_in_place(int64_t n, int64_t front, bool to_larger, F&& convert) {
  if (!to_larger) convert(int64_t{0}, std::min(n, front));
  const int64_t parts = n > front ? std::bit_width(static_cast<uint64_t>((n - 1) / front)) : 0;
  for (int64_t i = 0; i < parts; i++) {
    const int64_t begin = front << (to_larger ? parts - 1 - i : i);
    convert(begin, std::min(n, 2 * begin));
  }
  if (to_larger) convert(int64_t{0}, std::min(n, front));
}

}  // namespace megalith
