#include "checkpoints/piece.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "kernels/base/check.h"

namespace megalith {
namespace {

constexpr int64_t max_elements = int64_t{1} << 56;  // keeps offsets in bytes far from overflow

int64_t width(const Piece& p) { return p.col_end - p.col_begin; }

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

int64_t Piece::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); i++) n *= shape[i];
  return n;
}

int64_t Piece::cols() const { return shape.empty() ? 0 : shape.back(); }

Piece whole_piece(std::string name, std::vector<int64_t> shape) {
  Piece p{std::move(name), std::move(shape)};
  p.col_end = p.cols();
  p.end = p.rows() * p.cols();
  return p;
}

Piece flat_piece(std::string name, std::vector<int64_t> shape, int64_t begin, int64_t end) {
  Piece p = whole_piece(std::move(name), std::move(shape));
  p.begin = begin;
  p.end = end;
  return p;
}

std::string describe(const Piece& p) {
  return fmt::format("{} ({}) columns [{}, {}) elements [{}, {})", p.name, fmt::join(p.shape, ", "), p.col_begin,
                     p.col_end, p.begin, p.end);
}

void check_piece(const Piece& p) {
  CHECK(is_name(p.name),
        "'{}' is no name for a tensor in a checkpoint: printable ASCII without '#', segments joined by single slashes, "
        "{} "
        "characters at most",
        p.name.substr(0, longest_name), longest_name);
  CHECK(!p.shape.empty(), "tensor {} has no dimensions; a scalar is stored as a vector of one", p.name);
  CHECK(p.shape.size() <= most_dims, "tensor {} has {} dimensions; at most {}", p.name, p.shape.size(), most_dims);
  int64_t n = 1;
  for (int64_t d : p.shape) {
    CHECK(d > 0, "tensor {} has a dimension of {}; all must be positive", p.name, d);
    CHECK(d <= max_elements / n, "tensor {} ({}) has more than 2^56 elements", p.name, fmt::join(p.shape, ", "));
    n *= d;
  }
  CHECK(0 <= p.col_begin && p.col_begin < p.col_end && p.col_end <= p.cols(), "{}: its columns are not among its {}",
        describe(p), p.cols());
  CHECK(0 <= p.begin && p.begin <= p.end && p.end <= p.rows() * width(p), "{}: its elements are not among its {}",
        describe(p), p.rows() * width(p));
}

std::vector<CopyRun> copy_runs(const Piece& source, const Piece& destination) {
  CHECK(source.name == destination.name && source.shape == destination.shape,
        "{} is not a piece of the same tensor as {}", describe(source), describe(destination));
  if (source.numel() == 0 || destination.numel() == 0) return {};

  const int64_t source_width = width(source), destination_width = width(destination);
  if (source.col_begin == destination.col_begin && source_width == destination_width) {
    const int64_t begin = std::max(source.begin, destination.begin), end = std::min(source.end, destination.end);
    if (begin >= end) return {};
    return {{begin - source.begin, begin - destination.begin, end - begin}};
  }

  std::vector<CopyRun> runs;
  const int64_t first = std::max(source.begin / source_width, destination.begin / destination_width);
  const int64_t last = std::min((source.end - 1) / source_width, (destination.end - 1) / destination_width);
  for (int64_t row = first; row <= last; row++) {
    // Where the row's column 0 would lie in the flattened columns of either piece.
    const int64_t source_zero = row * source_width - source.col_begin;
    const int64_t destination_zero = row * destination_width - destination.col_begin;
    const int64_t begin = std::max(
        {source.col_begin, destination.col_begin, source.begin - source_zero, destination.begin - destination_zero});
    const int64_t end =
        std::min({source.col_end, destination.col_end, source.end - source_zero, destination.end - destination_zero});
    if (begin >= end) continue;
    runs.push_back({source_zero + begin - source.begin, destination_zero + begin - destination.begin, end - begin});
  }
  return runs;
}

}  // namespace megalith
