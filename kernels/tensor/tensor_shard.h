// The elements of a global tensor that a buffer holds. Checkpoints consist of tensors by name and range, not of a
// layout, so that any layout reads any checkpoint.
//
// A tensor of any shape is seen as a matrix (rows, cols): cols is the last dimension, rows the product of the others; a
// vector is one row. A shard takes `columns` of it, flattens them row by row, and keeps `elements` of the result. So
//   a split by rows       has all columns and a range of whole rows,
//   a split by columns    has some columns and all rows,
//   a flat shard          of either is a sub-range of it.
// A shard may be empty: many ranks hold none of a small tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor/interval.h"

namespace megalith {

struct TensorShard {
  std::string name;            // global name; the kind is a path: "parameters/wte.weight", "moments/first/wte.weight"
  std::vector<int64_t> shape;  // global shape, at least one dimension
  Interval columns{};          // a range of the matrix (rows, cols)
  Interval elements{};         // of rows * columns.size()

  int64_t rows() const;
  int64_t cols() const;
  int64_t numel() const { return elements.size(); }
  bool operator==(const TensorShard&) const = default;
};

// Returns the shard that is the whole tensor.
TensorShard whole_tensor(std::string name, std::vector<int64_t> shape);
// Returns elements of the flattened tensor, with all columns.
TensorShard flat_shard(std::string name, std::vector<int64_t> shape, Interval elements);

// Returns "parameters/wte.weight (50257, 768) columns [0, 768) elements [0, 100)", for messages.
std::string describe(const TensorShard& shard);

// Error if shape, columns and range contradict each other, or the name is invalid. A name is a path of printable ASCII
// segments joined by single slashes, without '#' (which numbers a tensor's datasets in a file), of at most 1000
// characters.
void check_shard(const TensorShard& shard);

// Elements [source, source + length) of one shard's buffer are [destination, destination + length) of another's.
struct CopyRun {
  int64_t source = 0;
  int64_t destination = 0;
  int64_t length = 0;
  bool operator==(const CopyRun&) const = default;
};

// Returns what two shards of one tensor share, as maximal runs that ascend in both buffers: one run if their columns
// are equal, else at most one a row. Error if names or shapes differ.
std::vector<CopyRun> copy_runs(const TensorShard& source, const TensorShard& destination);

}  // namespace megalith
