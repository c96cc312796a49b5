// A TensorShard says which elements of a global tensor a buffer holds, and nothing about who holds it or why:
// checkpoints are made of tensors by name and range, never of a layout, so that any layout reads any checkpoint.
//
// A tensor of any shape is seen as a matrix (rows, cols): cols is the last dimension, rows the product of the others; a
// vector is one row. A shard takes `columns` of that matrix, flattens them row by row, and keeps `elements` of the
// result. So
//   a split by rows       has all columns and a range of whole rows,
//   a split by columns    has some columns and all rows,
//   a flat shard          of either is a sub-range of it.
// A shard may be empty, as that of a small tensor is on many ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/interval.h"

namespace megalith {

struct TensorShard {
  std::string name;            // global name; the kind is a path: "parameters/wte.weight", "moments/first/wte.weight"
  std::vector<int64_t> shape;  // global shape, at least one dimension
  Interval columns{};          // of (rows, cols)
  Interval elements{};         // of rows * columns.size()

  int64_t rows() const;
  int64_t cols() const;
  int64_t numel() const { return elements.size(); }
  bool operator==(const TensorShard&) const = default;
};

// All of a tensor.
TensorShard whole_tensor(std::string name, std::vector<int64_t> shape);
// Elements of the flattened tensor: all columns.
TensorShard flat_shard(std::string name, std::vector<int64_t> shape, Interval elements);

// "parameters/wte.weight (50257, 768) columns [0, 768) elements [0, 100)", for messages.
std::string describe(const TensorShard& shard);

// Throws Error when the shape, the columns or the range contradict each other, or the name is not one: a path of
// printable ASCII segments joined by single slashes, without '#' (which numbers the datasets of one tensor in a file),
// of 1000 characters at most.
void check_shard(const TensorShard& shard);

// `length` elements at `source` of the source shard's buffer are the elements at `destination` of the other's.
struct CopyRun {
  int64_t source = 0;
  int64_t destination = 0;
  int64_t length = 0;
  bool operator==(const CopyRun&) const = default;
};

// Returns what two shards of one tensor share, as maximal runs that ascend in both buffers: a single run when their
// columns are equal, else at most one a row. Names and shapes must agree (Error).
std::vector<CopyRun> copy_runs(const TensorShard& source, const TensorShard& destination);

}  // namespace megalith
