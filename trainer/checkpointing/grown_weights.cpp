#include "trainer/checkpointing/grown_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementwise/philox.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

bool has_a_row_a_token(const std::string& name) {
  const std::string path(parameters_path);
  return name == path + "wte.weight" || name == path + "lm_head.weight";
}

double normal(uint64_t seed, int64_t row, int64_t column) {
  const PhiloxBlock words = philox(seed, static_cast<uint64_t>(row), static_cast<uint64_t>(column));
  return std::sqrt(-2 * std::log(uniform(words[0]))) * std::cos(2 * std::numbers::pi * uniform(words[1]));
}

}  // namespace

GrownSource::GrownSource(std::unique_ptr<TensorSource> base, int64_t rows, uint64_t seed)
    : base_(std::move(base)), rows_(rows), seed_(seed) {}

std::vector<int64_t> GrownSource::shape(const std::string& name) const {
  std::vector<int64_t> shape = base_->shape(name);
  if (has_a_row_a_token(name)) shape[0] = rows_;
  return shape;
}

const GrownSource::Columns& GrownSource::columns_of(const std::string& name) {
  const auto found = columns_.find(name);
  if (found != columns_.end()) return found->second;
  const std::vector<int64_t> shape = base_->shape(name);
  const int64_t rows = shape[0], width = shape[1];
  std::vector<double> sums(static_cast<size_t>(width)), squares(sums.size());
  std::vector<float> row(sums.size());
  for (int64_t r = 0; r < rows; r++) {
    base_->read(flat_shard(name, shape, {r * width, (r + 1) * width}), row.data());
    for (size_t c = 0; c < row.size(); c++) {
      sums[c] += row[c];
      squares[c] += static_cast<double>(row[c]) * row[c];
    }
  }
  Columns columns;
  for (size_t c = 0; c < sums.size(); c++) {
    const double mean = sums[c] / static_cast<double>(rows);
    columns.mean.push_back(mean);
    columns.spread.push_back(std::sqrt(std::max(0.0, squares[c] / static_cast<double>(rows) - mean * mean)));
  }
  return columns_[name] = std::move(columns);
}

void GrownSource::read(const TensorShard& wanted, float* out) {
  if (!has_a_row_a_token(wanted.name)) return base_->read(wanted, out);
  check_shard(wanted);
  const std::vector<int64_t> there = base_->shape(wanted.name);
  CHECK(wanted.shape == shape(wanted.name), "{} is requested with another shape", wanted.name);
  const int64_t width = wanted.columns.size(), old_end = there[0] * width;
  TensorShard old = wanted;
  old.shape = there;
  old.elements.end = std::min(wanted.elements.end, old_end);
  if (old.elements.begin < old.elements.end) {
    base_->read(old, out);
    out += old.numel();
  }
  for (int64_t e = std::max(wanted.elements.begin, old_end); e < wanted.elements.end; e++) {
    const Columns& columns = columns_of(wanted.name);
    const int64_t row = e / width, column = wanted.columns.begin + e % width;
    const auto c = static_cast<size_t>(column);
    *out++ = static_cast<float>(columns.mean[c] + columns.spread[c] * normal(seed_, row, column));
  }
}

}  // namespace megalith
