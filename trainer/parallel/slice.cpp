#include "trainer/parallel/slice.h"

#include <algorithm>

namespace megalith {

namespace {

// Rows that are split by themselves: of each rank, and of these what is here, from row `local` of the memory on and
// from row `global` of the whole.
struct RowGroup {
  int64_t each, held, local, global;
};

std::vector<RowGroup> row_groups(const ParamSpec& param, const TensorRank& tensor) {
  std::vector<RowGroup> groups;
  int64_t local = 0, global = 0;
  for (const int64_t rows : param.row_groups.empty() ? std::vector{param.shape[0]} : param.row_groups) {
    const int64_t each = round_up((rows + tensor.degree - 1) / tensor.degree, param.row_multiple);
    CHECK(each * tensor.degree == rows || (param.row_groups.empty() && param.row_multiple > 1),
          "the {} rows of {} cannot be split over {} tensor-parallel ranks", rows, param.name, tensor.degree);
    const int64_t first = std::min(rows, tensor.rank * each);
    groups.push_back({each, std::min(each, rows - first), local, global + first});
    local += each;
    global += rows;
  }
  return groups;
}

int64_t width(const Shape& shape) { return shape[shape.num_dims() - 1]; }

int64_t columns_of_each(const ParamSpec& param, int64_t degree) {
  CHECK(width(param.shape) % degree == 0, "the {} columns of {} cannot be split over {} tensor-parallel ranks",
        width(param.shape), param.name, degree);
  return width(param.shape) / degree;
}

}  // namespace

Shape local_shape(const ParamSpec& param, const TensorRank& tensor) {
  switch (param.split) {
    case Split::rows: {
      const RowGroup last = row_groups(param, tensor).back();
      const int64_t rows = last.local + last.each;
      return param.shape.num_dims() == 1 ? Shape{rows} : Shape{rows, param.shape[1]};
    }
    case Split::columns: return {param.shape[0], columns_of_each(param, tensor.degree)};
    default: return param.shape;
  }
}

std::vector<LocalShard> shards_of(const ParamSpec& param, const TensorRank& tensor, Interval elements) {
  const int64_t C = width(param.shape);
  std::vector<LocalShard> shards;
  const auto add = [&](int64_t local, Interval columns, Interval held) {
    if (held.size() > 0) shards.push_back({{param.name, param.shape.dims(), columns, held}, local});
  };
  if (param.split == Split::none) {
    add(elements.begin, {0, C}, elements);
  } else if (param.split == Split::columns) {
    const int64_t each = columns_of_each(param, tensor.degree);
    add(elements.begin, {tensor.rank * each, (tensor.rank + 1) * each}, elements);
  } else {
    const int64_t cols = param.shape.num_dims() == 1 ? 1 : C;
    for (const RowGroup& group : row_groups(param, tensor)) {
      const int64_t begin = group.local * cols, shift = group.global * cols - begin;
      const Interval here = intersect(elements, {begin, begin + group.held * cols});
      add(here.begin, {0, C}, {here.begin + shift, here.end + shift});
    }
  }
  return shards;
}

Columns columns_of(const TensorShard& shard) { return {shard.columns.begin, shard.columns.size(), shard.cols()}; }

VocabularyPart vocabulary_part(const ParamSpec& table, const TensorRank& tensor) {
  const RowGroup all = row_groups(table, tensor).front();
  return {.first = all.global, .count = all.held, .total = table.shape[0]};
}

}  // namespace megalith
