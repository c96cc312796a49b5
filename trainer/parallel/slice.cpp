#include "trainer/parallel/slice.h"

#include <algorithm>

namespace megalith {

namespace {

// A row split, seen as `groups` groups of `rows` rows of `cols` elements, of which each rank has `each`.
struct RowSplit {
  int64_t groups, rows, cols, each;

  RowSplit(const ParamSpec& param, int64_t degree) {
    const bool vector = param.shape.num_dims() == 1;
    cols = vector ? 1 : param.shape[1];
    groups = param.row_groups;
    rows = param.shape[0] / groups;
    each = (rows + degree - 1) / degree;
    each = (each + param.row_multiple - 1) / param.row_multiple * param.row_multiple;
    CHECK(each * degree == rows || (groups == 1 && param.row_multiple > 1),
          "the {} rows of {} cannot be split over {} tensor-parallel ranks", rows, param.name, degree);
  }
};

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
      const RowSplit split(param, tensor.degree);
      const int64_t rows = split.groups * split.each;
      return param.shape.num_dims() == 1 ? Shape{rows} : Shape{rows, split.cols};
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
    const RowSplit split(param, tensor.degree);
    const int64_t first = tensor.rank * split.each;
    const int64_t held = std::clamp<int64_t>(split.rows - first, 0, split.each);
    for (int64_t g = 0; g < split.groups; g++) {
      const int64_t begin = g * split.each * split.cols, global = (g * split.rows + first) * split.cols;
      const Interval here = intersect(elements, {begin, begin + held * split.cols});
      add(here.begin, {0, C}, {here.begin - begin + global, here.end - begin + global});
    }
  }
  return shards;
}

Columns columns_of(const TensorShard& shard) { return {shard.columns.begin, shard.columns.size(), shard.cols()}; }

VocabularyPart vocabulary_part(const ParamSpec& table, const TensorRank& tensor) {
  const RowSplit split(table, tensor.degree);
  const int64_t first = std::min(split.rows, tensor.rank * split.each);
  return {.first = first, .count = std::min(split.each, split.rows - first), .total = split.rows};
}

}  // namespace megalith
