#include "checkpoints/difference.h"
#include "kernels/system/long_work.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

namespace megalith {
namespace {

constexpr int64_t block_elements = int64_t{1} << 20;

void note(TensorDifference::Most& most, double difference, int64_t element, float a, float b) {
  if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
  if (difference > most.difference) most = {difference, element, a, b};
}

void compare_elements(CheckpointReader& a, CheckpointReader& b, TensorDifference& d, LongWork& work) {
  const TensorShard whole = whole_tensor(d.name, d.a->shape);
  d.elements = whole.numel();
  const auto block = static_cast<size_t>(std::min(block_elements, d.elements));
  std::vector<float> of_a(block), of_b(block);
  for (int64_t begin = 0; begin < d.elements; begin += block_elements) {
    const TensorShard here = flat_shard(whole.name, whole.shape, {begin, std::min(begin + block_elements, d.elements)});
    a.read(here, of_a.data());
    b.read(here, of_b.data());
    work.advance(here.numel());
    for (size_t i = 0; i < static_cast<size_t>(here.numel()); i++) {
      const float x = of_a[i], y = of_b[i];
      if (std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y)) continue;
      const int64_t element = begin + static_cast<int64_t>(i);
      if (d.differing++ == 0) d.absolute = d.relative = {0, element, x, y};  // 0 and -0 are equal
      const double distance = std::fabs(static_cast<double>(x) - static_cast<double>(y));
      note(d.absolute, distance, element, x, y);
      if (distance != 0) note(d.relative, distance / std::max(std::fabs(x), std::fabs(y)), element, x, y);
    }
  }
}

std::optional<TensorDifference::Side> side_of(const CheckpointReader& reader, const std::string& name) {
  if (!reader.holds(name)) return {};
  return TensorDifference::Side{reader.shape(name), reader.dtype(name)};
}

// Returns the index of an element of the flattened tensor in its shape.
std::string place(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0; element /= shape[i]) index[i] = element % shape[i];
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace

TensorComparison compare_tensors(CheckpointReader& a, CheckpointReader& b) {
  TensorComparison all;
  std::set<std::string> names = a.names();
  names.merge(b.names());
  int64_t elements_of_all = 0;
  for (const std::string& name : names)
    elements_of_all += whole_tensor(name, (a.holds(name) ? a : b).shape(name)).numel();
  LongWork work(fmt::format("comparing {} and {}", a.folder(), b.folder()), elements_of_all);
  for (const std::string& name : names) {
    TensorDifference d{.name = name, .a = side_of(a, name), .b = side_of(b, name)};
    all.tensors++;
    const int64_t elements = whole_tensor(name, (d.a ? d.a : d.b)->shape).numel();
    all.elements += elements;
    if (d.a && d.b && d.a->shape == d.b->shape)
      compare_elements(a, b, d, work);
    else
      work.advance(elements);
    if (d.a != d.b || d.differing > 0) all.different.push_back(std::move(d));
  }
  return all;
}

std::string describe(const TensorDifference& d) {
  std::string text = d.name + ":";
  if (!d.a || !d.b) return fmt::format("{} only in {}", text, d.a ? "the first" : "the second");
  if (d.a->dtype != d.b->dtype) text += fmt::format(" {} | {},", name_of(d.a->dtype), name_of(d.b->dtype));
  if (d.a->shape != d.b->shape)
    return fmt::format("{} shape ({}) | ({})", text, fmt::join(d.a->shape, ", "), fmt::join(d.b->shape, ", "));
  text += fmt::format(" {} of {} elements differ", d.differing, d.elements);
  if (d.differing == 0) return text;
  const auto most = [&](const TensorDifference::Most& m) {
    return fmt::format("{:.3g} at {} ({} | {})", m.difference, place(m.element, d.a->shape), m.a, m.b);
  };
  return fmt::format("{}, by at most {}; relative to the larger {}", text, most(d.absolute), most(d.relative));
}

}  // namespace megalith
