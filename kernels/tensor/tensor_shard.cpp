#include "kernels/tensor/tensor_shard.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "kernels/system/check.h"

namespace megalith {
namespace {

constexpr int64_t max_elements = int64_t{1} << 56;  // keeps offsets in bytes far from overflow

constexpr size_t longest_name = 1000, most_dims = 32;

bool is_name(const std::string& name) {
  if (name.empty() || name.size() > longest_name) return false;
  for (char c : name)
    if (c <= ' ' || c > '~' || c == '#') return false;
  size_t begin = 0;
  while (true) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    const std::string segment = name.substr(begin, slash - begin);
    if (segment.empty() || segment == "." || segment == "..") return false;
    if (slash == name.size()) return true;
    begin = slash + 1;
  }
}

}  // namespace

int64_t TensorShard::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); i++) n *= shape[i];
  return n;
}

int64_t TensorShard::cols() const { return shape.empty() ? 0 : shape.back(); }

TensorShard whole_tensor(std::string name, std::vector<int64_t> shape) {
  TensorShard p{std::move(name), std::move(shape)};
  p.columns = {0, p.cols()};
  p.elements = {0, p.rows() * p.cols()};
  return p;
}

TensorShard flat_shard(std::string name, std::vector<int64_t> shape, Interval elements) {
  TensorShard p = whole_tensor(std::move(name), std::move(shape));
  p.elements = elements;
  return p;
}

std::string describe(const TensorShard& p) {
  return fmt::format("{} ({}) columns [{}, {}) elements [{}, {})", p.name, fmt::join(p.shape, ", "), p.columns.begin,
                     p.columns.end, p.elements.begin, p.elements.end);
}

void check_shard(const TensorShard& p) {
  CHECK(is_name(p.name),
        "'{}' is not a valid tensor name: it must be printable ASCII without '#', segments joined by single slashes, "
        "{} characters at most",
        p.name.substr(0, longest_name), longest_name);
  CHECK(!p.shape.empty(), "tensor {} has no dimensions; a scalar is stored as a vector of one", p.name);
  CHECK(p.shape.size() <= most_dims, "tensor {} has {} dimensions; at most {}", p.name, p.shape.size(), most_dims);
  int64_t n = 1;
  for (int64_t d : p.shape) {
    CHECK(d > 0, "tensor {} has a dimension of {}; all must be positive", p.name, d);
    CHECK(d <= max_elements / n, "tensor {} ({}) has more than 2^56 elements", p.name, fmt::join(p.shape, ", "));
    n *= d;
  }
  CHECK(0 <= p.columns.begin && p.columns.begin < p.columns.end && p.columns.end <= p.cols(),
        "{}: its columns are outside [0, {})", describe(p), p.cols());
  CHECK(0 <= p.elements.begin && p.elements.begin <= p.elements.end && p.elements.end <= p.rows() * p.columns.size(),
        "{}: its elements are outside [0, {})", describe(p), p.rows() * p.columns.size());
}

std::vector<CopyRun> copy_runs(const TensorShard& source, const TensorShard& destination) {
  CHECK(source.name == destination.name && source.shape == destination.shape,
        "{} is not a shard of the same tensor as {}", describe(source), describe(destination));
  if (source.numel() == 0 || destination.numel() == 0) return {};

  const Interval from = source.elements, to = destination.elements;
  if (source.columns == destination.columns) {
    const Interval both = intersect(from, to);
    if (both.size() == 0) return {};
    return {{both.begin - from.begin, both.begin - to.begin, both.size()}};
  }

  std::vector<CopyRun> runs;
  const Interval columns = intersect(source.columns, destination.columns);
  const int64_t first = std::max(from.begin / source.columns.size(), to.begin / destination.columns.size());
  const int64_t last = std::min((from.end - 1) / source.columns.size(), (to.end - 1) / destination.columns.size());
  for (int64_t row = first; row <= last; row++) {
    // The offset of the row's column 0 in each shard's buffer, which may be outside the buffer.
    const int64_t from_zero = row * source.columns.size() - source.columns.begin - from.begin;
    const int64_t to_zero = row * destination.columns.size() - destination.columns.begin - to.begin;
    const Interval here =
        intersect(columns, intersect({-from_zero, from.size() - from_zero}, {-to_zero, to.size() - to_zero}));
    if (here.size() > 0) runs.push_back({from_zero + here.begin, to_zero + here.begin, here.size()});
  }
  return runs;
}

}  // namespace megalith
