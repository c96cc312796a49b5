// Some columns of a matrix, and where their elements lie in the whole.
#pragma once

#include <cstdint>

namespace megalith {

// Columns [begin, begin + count) of a matrix that has `total`. As it stands: all of them, however many there are.
struct Columns {
  int64_t begin = 0, count = 1, total = 1;
};

// Of element i of the flattened (rows, count) matrix of these columns, its place in the flattened (rows, total) one.
constexpr int64_t place_in_whole(const Columns& c, int64_t i) {
  return c.count == c.total ? i : i / c.count * c.total + c.begin + i % c.count;
}

}  // namespace megalith
