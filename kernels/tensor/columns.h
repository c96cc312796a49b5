// A range of columns of a matrix, and the index of its elements in the whole matrix.
#pragma once

#include <cstdint>

namespace megalith {

// Columns [begin, begin + count) of a matrix with `total` columns. The default means all of them.
struct Columns {
  int64_t begin = 0, count = 1, total = 1;
};

// Returns the index in the flattened (rows, total) matrix of element i of the flattened (rows, count) one.
constexpr int64_t place_in_whole(const Columns& c, int64_t i) {
  return c.count == c.total ? i : i / c.count * c.total + c.begin + i % c.count;
}

}  // namespace megalith
