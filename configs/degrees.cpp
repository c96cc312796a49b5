#include "configs/degrees.h"

#include "configs/rules.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace megalith {
namespace {

// A shard group takes every distance-th rank of a block of distance * shard; the blocks follow one another.
int64_t distance_of_sharers(const std::string& placement, const Degrees& d) {
  int64_t distance = 1;
  for (const auto& [axis, degree] : {std::pair{"tensor", d.tensor}, {"data", d.data}, {"pipeline", d.pipeline}})
    if (placement.find(axis) < placement.find("shard")) distance *= degree;
  return distance;
}

bool fit_nodes(const Degrees& d, int64_t distance, int64_t node) {
  const int64_t block = distance * d.shard;
  const bool one_node = node == 0 || node >= d.tensor * d.shard * d.data * d.pipeline;
  return d.shard == 1 || one_node || distance >= node || node % block == 0 ||
         (node % distance == 0 && block % node == 0);
}

// Returns why the degrees do not fit, or "" and then `d` is set.
std::string misfit(const Config& config, int64_t num_ranks, Degrees& d) {
  const ParallelConfig& p = config.parallel;
  const int64_t tensor = p.tensor_parallel_degree, pipeline = p.pipeline_parallel_degree, product = tensor * pipeline;
  if (num_ranks % product != 0)
    return fmt::format(
        "parallel.tensor_parallel_degree {} x pipeline_parallel_degree {} = {} does not divide the {} "
        "ranks",
        tensor, pipeline, product, num_ranks);
  const int64_t ranks = num_ranks / product, sharded = p.sharded_data_parallel_degree;
  const int64_t shard = p.sharding_strategy == ShardingStrategy::no_shard ? 1 : sharded > 0 ? sharded : ranks;
  if (ranks % shard != 0)
    return fmt::format(
        "parallel.sharded_data_parallel_degree = {} does not divide the {} data-parallel ranks that remain after "
        "tensor_parallel_degree {} x pipeline_parallel_degree {} of {}",
        shard, ranks, tensor, pipeline, counted(num_ranks, "rank"));
  d = {.tensor = tensor, .shard = shard, .data = ranks / shard, .pipeline = pipeline};
  const int64_t distance = distance_of_sharers(p.placement, d);
  if (p.hierarchical_allgather && !fit_nodes(d, distance, p.ranks_per_node))
    return fmt::format(
        "parallel.hierarchical_allgather = true: shard groups of {} ranks with a distance of {} are neither inside "
        "nodes of parallel.ranks_per_node = {} nor fill whole ones",
        shard, distance, p.ranks_per_node);
  return "";
}

bool fits(const Config& config, int64_t num_ranks) {
  Degrees unused;
  return misfit(config, num_ranks, unused).empty() && is_valid(config);
}

std::string what_fits(const Config& config, int64_t num_ranks) {
  constexpr int64_t far = 100;  // in multiples; larger numbers are not suggested
  const ParallelConfig& p = config.parallel;
  const int64_t unit =
      p.tensor_parallel_degree * p.pipeline_parallel_degree * std::max<int64_t>(1, p.sharded_data_parallel_degree);
  std::vector<std::string> ways;
  std::vector<int64_t> found;
  const int64_t around = num_ranks / unit, most = std::min(around + far, std::numeric_limits<int>::max() / unit);
  for (int64_t k = std::max<int64_t>(1, around - far); k <= most; k++)
    if (Degrees unused; misfit(config, k * unit, unused).empty()) found.push_back(k * unit);
  if (!found.empty())
    ways.push_back(
        fmt::format("{} rank{}", fmt::join(nearest(found, num_ranks, 2), " or "), found.back() == 1 ? "" : "s"));

  using P = ParallelConfig;
  for (const auto& [name, key] : {std::pair{"tensor_parallel_degree", &P::tensor_parallel_degree},
                                  {"pipeline_parallel_degree", &P::pipeline_parallel_degree},
                                  {"sharded_data_parallel_degree", &P::sharded_data_parallel_degree},
                                  {"ranks_per_node", &P::ranks_per_node}}) {
    Config other = config;
    int64_t& value = other.parallel.*key;
    const int64_t asked = value > 0 ? value : num_ranks;  // 0 means all
    found.clear();
    for (value = 1; value <= num_ranks; value++)
      if (fits(other, num_ranks)) found.push_back(value);
    if (!found.empty())
      ways.push_back(fmt::format("parallel.{} = {}", name, fmt::join(nearest(found, asked, 4), " or ")));
  }
  Config plain = config;
  plain.parallel.hierarchical_allgather = false;
  if (p.hierarchical_allgather && fits(plain, num_ranks)) ways.emplace_back("parallel.hierarchical_allgather = false");
  if (ways.empty()) ways.emplace_back("the defaults of [parallel]");
  return fmt::format("{}", fmt::join(ways, "; "));
}

}  // namespace

Degrees degrees(const Config& config, int64_t num_ranks) {
  CHECK(num_ranks >= 1, "a mesh of {} ranks; at least one", num_ranks);
  Degrees d;
  if (const std::string wrong = misfit(config, num_ranks, d); !wrong.empty())
    FAIL("{}; any of these would fit: {}", wrong, what_fits(config, num_ranks));
  return d;
}

}  // namespace megalith
