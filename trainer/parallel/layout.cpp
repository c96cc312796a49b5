#include "trainer/parallel/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "kernels/base/check.h"

namespace megalith {
namespace {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d * d <= n; d++) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::sort(all.begin(), all.end());
  return all;
}

// The `most` that are nearest to x, in order.
std::vector<int64_t> nearest(std::vector<int64_t> values, int64_t x, size_t most) {
  std::stable_sort(values.begin(), values.end(),
                   [x](int64_t a, int64_t b) { return std::abs(a - x) < std::abs(b - x); });
  values.resize(std::min(values.size(), most));
  std::sort(values.begin(), values.end());
  return values;
}

// "a", "a or b", "a, b or c".
std::string either(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); i++) {
    if (i > 0) text += i + 1 < words.size() ? ", " : " or ";
    text += words[i];
  }
  return text;
}

std::array<Axis, 4> placement_of(std::string_view words) {
  std::array<Axis, 4> placement = all_axes;
  std::sort(placement.begin(), placement.end(),
            [&](Axis a, Axis b) { return words.find(name_of(a)) < words.find(name_of(b)); });
  return placement;
}

// Whether every shard group can be gathered between nodes first and then inside them, or needs only one of the two.
// A group takes every distance-th rank of a block of distance * shard; the blocks follow one another.
bool nodes_fit(const MeshShape& shape) {
  const int64_t node = shape.ranks_per_node, distance = shape.stride(Axis::shard);
  const bool inside = node == 0 || node >= shape.size() || node % (distance * shape.shard) == 0;
  const bool one_on_each = distance >= node;
  return shape.shard == 1 || inside || one_on_each || shape.shard_nodes() > 1;
}

enum class Misfit { none, product, shard, nodes };
struct Attempt {
  Misfit misfit = Misfit::none;
  MeshShape shape{};
};

Attempt attempt(const Config& config, int64_t num_ranks) {
  const ParallelConfig& p = config.parallel;
  const int64_t product = p.tensor_parallel_degree * p.pipeline_parallel_degree;
  if (num_ranks % product != 0) return {Misfit::product};
  const int64_t ranks = num_ranks / product;  // data-parallel ones
  int64_t shard = p.sharded_data_parallel_degree;
  if (p.sharding_strategy == ShardingStrategy::no_shard) shard = 1;
  if (shard == 0) shard = ranks;
  if (ranks % shard != 0) return {Misfit::shard};
  const MeshShape shape{.tensor = static_cast<int>(p.tensor_parallel_degree),
                        .shard = static_cast<int>(shard),
                        .data = static_cast<int>(ranks / shard),
                        .pipeline = static_cast<int>(p.pipeline_parallel_degree),
                        .placement = placement_of(p.placement),
                        .ranks_per_node = static_cast<int>(p.ranks_per_node)};
  return {p.hierarchical_allgather && !nodes_fit(shape) ? Misfit::nodes : Misfit::none, shape};
}

// Whether a proposal is a valid config that fits.
bool possible(const Config& config, int64_t num_ranks) {
  return attempt(config, num_ranks).misfit == Misfit::none && is_valid(config);
}

// The two nearest numbers of ranks that the config as it is can run on.
std::vector<std::string> possible_ranks(const Config& config, int64_t num_ranks) {
  constexpr int64_t far = 1000;  // multiples; beyond, no number is near
  const ParallelConfig& p = config.parallel;
  const int64_t unit =
      p.tensor_parallel_degree * p.pipeline_parallel_degree * std::max<int64_t>(1, p.sharded_data_parallel_degree);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < far && found.size() < 2; i++)
    for (int64_t k : {num_ranks / unit - i, num_ranks / unit + 1 + i})
      if (k > 0 && k <= std::numeric_limits<int>::max() / unit && possible(config, k * unit)) found.push_back(k * unit);
  std::vector<std::string> texts;
  for (int64_t ranks : nearest(found, num_ranks, 2)) texts.push_back(fmt::format("{}", ranks));
  return texts;
}

// Up to four pairs of degrees that these ranks can take, by the factors that lie between them and what was asked for;
// of equals, those that use more ranks, then those that use more for tensors.
std::vector<std::string> possible_degrees(const Config& config, int64_t num_ranks) {
  struct Pair {
    int64_t tensor, pipeline;
    double away;
  };
  const int64_t tensor = config.parallel.tensor_parallel_degree, pipeline = config.parallel.pipeline_parallel_degree;
  const auto factor = [](int64_t a, int64_t b) {
    return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  };
  std::vector<Pair> pairs;
  Config other = config;
  for (int64_t t : divisors(num_ranks))
    for (int64_t p : divisors(num_ranks / t)) {
      other.parallel.tensor_parallel_degree = t;
      other.parallel.pipeline_parallel_degree = p;
      if (possible(other, num_ranks)) pairs.push_back({t, p, factor(t, tensor) * factor(p, pipeline)});
    }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tuple(a.away, -a.tensor * a.pipeline, -a.tensor) <
           std::tuple(b.away, -b.tensor * b.pipeline, -b.tensor);
  });
  pairs.resize(std::min<size_t>(pairs.size(), 4));
  std::vector<std::string> texts;
  for (const Pair& pair : pairs) texts.push_back(fmt::format("{} x {}", pair.tensor, pair.pipeline));
  return texts;
}

// Up to eight ways to share one copy among these ranks.
std::vector<int64_t> possible_shards(const Config& config, int64_t num_ranks) {
  const ParallelConfig& p = config.parallel;
  const int64_t ranks = num_ranks / (p.tensor_parallel_degree * p.pipeline_parallel_degree);
  std::vector<int64_t> found;
  Config other = config;
  for (int64_t shard : divisors(ranks)) {
    other.parallel.sharded_data_parallel_degree = shard;
    if (attempt(other, num_ranks).misfit == Misfit::none) found.push_back(shard);
  }
  return nearest(found, p.sharded_data_parallel_degree == 0 ? ranks : p.sharded_data_parallel_degree, 8);
}

// Up to four sizes of nodes that the mesh would fit.
std::vector<int64_t> possible_nodes(MeshShape shape) {
  const int asked = shape.ranks_per_node;
  std::vector<int64_t> found;
  for (shape.ranks_per_node = 1; shape.ranks_per_node <= shape.size(); shape.ranks_per_node++)
    if (nodes_fit(shape)) found.push_back(shape.ranks_per_node);
  return nearest(found, asked, 4);
}

std::string ways_to_run(const Config& config, int num_ranks) {
  const std::vector<std::string> ranks = possible_ranks(config, num_ranks);
  const std::vector<std::string> degrees = possible_degrees(config, num_ranks);
  std::vector<std::string> ways;
  if (!ranks.empty()) ways.push_back(fmt::format("on {} ranks", either(ranks)));
  if (!degrees.empty()) ways.push_back("with " + either(degrees));
  return fmt::format("{}", fmt::join(ways, ", or "));
}

[[noreturn]] void refuse_product(const Config& config, int num_ranks) {
  const int64_t tensor = config.parallel.tensor_parallel_degree, pipeline = config.parallel.pipeline_parallel_degree;
  std::string ways = ways_to_run(config, num_ranks), without;
  if (ways.empty()) {
    // Nothing fits the other keys: without them one rank an axis always does.
    Config plain = config;
    plain.parallel.virtual_stages = 1;
    plain.parallel.layers_per_stage.clear();
    plain.parallel.sharded_data_parallel_degree = 0;
    plain.parallel.hierarchical_allgather = false;
    without =
        "set virtual_stages, layers_per_stage, sharded_data_parallel_degree and hierarchical_allgather to their "
        "defaults and ";
    ways = ways_to_run(plain, num_ranks);
  }
  FAIL("parallel.tensor_parallel_degree {} x pipeline_parallel_degree {} = {} does not divide the {} ranks; {}run {}",
       tensor, pipeline, tensor * pipeline, num_ranks, without, ways);
}

[[noreturn]] void refuse_shard(const Config& config, int num_ranks) {
  const ParallelConfig& p = config.parallel;
  const int64_t product = p.tensor_parallel_degree * p.pipeline_parallel_degree;
  const std::string left =
      product == 1 ? ""
                   : fmt::format(" that tensor_parallel_degree {} x pipeline_parallel_degree {} leave of {} ranks",
                                 p.tensor_parallel_degree, p.pipeline_parallel_degree, num_ranks);
  FAIL("parallel.sharded_data_parallel_degree = {} does not divide the {} data-parallel ranks{}; these do: {}",
       p.sharded_data_parallel_degree, num_ranks / product, left, fmt::join(possible_shards(config, num_ranks), " "));
}

[[noreturn]] void refuse_nodes(const Config& config, const MeshShape& shape) {
  const int distance = shape.stride(Axis::shard);
  FAIL(
      "parallel.hierarchical_allgather = true: shard groups of {} ranks{} neither lie inside nodes of "
      "parallel.ranks_per_node = {} nor fill whole ones; parallel.sharded_data_parallel_degree could be one of {}, or "
      "parallel.ranks_per_node one of {}, or set parallel.hierarchical_allgather = false",
      shape.shard, distance > 1 ? fmt::format(" that stand {} apart", distance) : "", shape.ranks_per_node,
      fmt::join(possible_shards(config, shape.size()), " "), fmt::join(possible_nodes(shape), " "));
}

}  // namespace

MeshShape mesh_shape(const Config& config, int num_ranks) {
  CHECK(num_ranks >= 1, "a mesh of {} ranks; at least one", num_ranks);
  const Attempt made = attempt(config, num_ranks);
  switch (made.misfit) {
    case Misfit::product: refuse_product(config, num_ranks);
    case Misfit::shard: refuse_shard(config, num_ranks);
    case Misfit::nodes: refuse_nodes(config, made.shape);
    case Misfit::none: break;
  }
  return made.shape;
}

}  // namespace megalith
