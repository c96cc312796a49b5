#include "trainer/layout/slice.h"

#include <algorithm>

namespace megalith {

namespace {

// The local part of a row group has `held` of `each` rows of memory, starting at row `local` of the local tensor and
// row `global` of the whole; `holders` ranks have it.
struct PlacedRows {
  int64_t each, held, local, global;
  int64_t holders = 1;
};

std::vector<RowGroup> groups_of(const ParamSpec& param) {
  return param.row_groups.empty() ? std::vector<RowGroup>{{.rows = param.shape[0]}} : param.row_groups;
}

std::vector<PlacedRows> placed_rows(const ParamSpec& param, const TensorRank& tensor) {
  std::vector<PlacedRows> groups;
  int64_t local = 0, global = 0;
  for (const auto& [rows, block] : groups_of(param)) {
    const int64_t blocks = rows / block;
    const int64_t holders = param.row_groups.empty() ? 1 : std::max<int64_t>(1, tensor.degree / blocks);
    const int64_t parts = tensor.degree / holders;
    const int64_t each = round_up((blocks + parts - 1) / parts * block, param.row_multiple);
    CHECK(parts * holders == tensor.degree &&
              (each * parts == rows || (param.row_groups.empty() && param.row_multiple > 1)),
          "the {} rows of {}, in blocks of {}, cannot be split over {} tensor-parallel ranks", rows, param.name, block,
          tensor.degree);
    const int64_t first = std::min(rows, tensor.rank / holders * each);
    groups.push_back({each, std::min(each, rows - first), local, global + first, holders});
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
      const PlacedRows last = placed_rows(param, tensor).back();
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
    for (const PlacedRows& group : placed_rows(param, tensor)) {
      const int64_t begin = group.local * cols, shift = group.global * cols - begin;
      const Interval here = intersect(elements, {begin, begin + group.held * cols});
      add(here.begin, {0, C}, {here.begin + shift, here.end + shift});
    }
  }
  return shards;
}

std::vector<HeldRun> held_runs(const ParamSpec& param, const TensorRank& tensor) {
  const Interval all{0, local_shape(param, tensor).numel()};
  if (tensor.degree == 1 || param.split == Split::columns) return {{all}};
  if (param.split == Split::none) return {{all, tensor.degree, tensor.rank, param.partial_gradient}};
  const int64_t cols = param.shape.num_dims() == 1 ? 1 : width(param.shape);
  std::vector<HeldRun> runs;
  for (const PlacedRows& group : placed_rows(param, tensor)) {
    const Interval rows{group.local, group.local + group.each};
    const HeldRun run{
        {rows.begin * cols, rows.end * cols}, group.holders, tensor.rank % group.holders, group.holders > 1};
    if (!runs.empty() && runs.back().continues(run))
      runs.back().elements.end = run.elements.end;
    else
      runs.push_back(run);
  }
  return runs;
}

Columns columns_of(const TensorShard& shard) { return {shard.columns.begin, shard.columns.size(), shard.cols()}; }

VocabularyPart vocabulary_part(const ParamSpec& table, const TensorRank& tensor) {
  const PlacedRows all = placed_rows(table, tensor).front();
  return {.first = all.global, .count = all.held, .total = table.shape[0]};
}

}  // namespace megalith
