// Degrees, ranks and nodes to a mesh: each combination is laid out, or refused with a proposal that is accepted.
#include "trainer/layout/layout.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

#include "tests/long_tests.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

// 12 heads, 6 layers.
Config base() {
  Config config;
  config.model = {.layers = 6, .hidden = 48, .heads = 12, .vocab = 50, .context = 24, .dropout = 0};
  config.batch = {.sequence_length = 24, .global_batch_size = 24, .microbatch_size = 1};
  return resolve(config);
}

using Parallel = std::function<void(ParallelConfig&)>;

Config with(const Parallel& change) {
  Config config = base();
  change(config.parallel);
  return config;
}

TEST(Layout, AxesTakeTheRanks) {
  struct Case {
    int ranks;
    Parallel change;
    std::array<int, 4> extents;  // tensor, shard, data, pipeline
  };
  const Case cases[] = {
      {6, [](ParallelConfig&) {}, {1, 6, 1, 1}},
      {6, [](ParallelConfig& p) { p.sharded_data_parallel_degree = 2; }, {1, 2, 3, 1}},
      {6, [](ParallelConfig& p) { p.sharding_strategy = ShardingStrategy::no_shard; }, {1, 1, 6, 1}},
      {6, [](ParallelConfig& p) { p.sharding_strategy = ShardingStrategy::shard_optimizer; }, {1, 6, 1, 1}},
      {6, [](ParallelConfig& p) { p.sharding_strategy = ShardingStrategy::shard_grad_op; }, {1, 6, 1, 1}},
      {12, [](ParallelConfig& p) { p.tensor_parallel_degree = 3; }, {3, 4, 1, 1}},
      {16,
       [](ParallelConfig& p) {
         p.tensor_parallel_degree = 2;
         p.pipeline_parallel_degree = 2;
         p.sharded_data_parallel_degree = 2;
       },
       {2, 2, 2, 2}},
  };
  for (const Case& c : cases) {
    const MeshShape mesh = mesh_shape(with(c.change), c.ranks);
    EXPECT_EQ((std::array{mesh.tensor, mesh.shard, mesh.data, mesh.pipeline}), c.extents);
    EXPECT_EQ(mesh.placement, all_axes);
    EXPECT_EQ(mesh.ranks_per_node, 0);
  }
}

// Where a head is on all ranks of a tensor group, that group is theirs.
TEST(Layout, KeyValueHeadsAreOnAsManyRanksAsShareThem) {
  for (const auto& [heads, tensor, holders] :
       {std::array{12, 12, 1}, {4, 2, 1}, {4, 4, 1}, {4, 12, 3}, {6, 12, 2}, {2, 4, 2}, {1, 4, 1}, {1, 1, 1}}) {
    Config config = base();
    config.model.key_value_heads = heads;
    config.parallel.tensor_parallel_degree = tensor;
    EXPECT_EQ(mesh_shape(config, 24).head_holders, holders) << heads << " on " << tensor;
  }
}

TEST(Layout, PlacementAndNodesAreTheConfigs) {
  std::array<Axis, 4> order = all_axes;
  int permutations = 0;
  do {
    for (const char* between : {" ", ",", ", "}) {
      const MeshShape mesh = mesh_shape(with([&](ParallelConfig& p) {
                                          p.placement.clear();
                                          for (Axis axis : order)
                                            p.placement +=
                                                (p.placement.empty() ? "" : between) + std::string(name_of(axis));
                                          p.ranks_per_node = 3;
                                        }),
                                        4);
      EXPECT_EQ(mesh.placement, order);
      EXPECT_EQ(mesh.ranks_per_node, 3);
    }
    permutations++;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(permutations, 24);
}

TEST(Layout, RefusalsNameTheNumbersAndTheWaysOut) {
  struct Case {
    int ranks;
    Parallel change;
    std::string message;
  };
  const auto degrees = [](int64_t tensor, int64_t pipeline, int64_t shard = 0) {
    return [=](ParallelConfig& p) {
      p.tensor_parallel_degree = tensor;
      p.pipeline_parallel_degree = pipeline;
      p.sharded_data_parallel_degree = shard;
    };
  };
  const Case cases[] = {
      {0, degrees(1, 1), "a mesh of 0 ranks; at least one"},
      {8, degrees(4, 3),
       "parallel.tensor_parallel_degree 4 x pipeline_parallel_degree 3 = 12 does not divide the 8 ranks; any of these "
       "would fit: 12 or 24 ranks; parallel.pipeline_parallel_degree = 1 or 2"},
      // No 8 x 1: there are 12 heads.
      {8, degrees(6, 1),
       "parallel.tensor_parallel_degree 6 x pipeline_parallel_degree 1 = 6 does not divide the 8 ranks; any of these "
       "would fit: 6 or 12 ranks; parallel.tensor_parallel_degree = 1 or 2 or 4"},
      // No 1 x 8: there are 6 layers.
      {8, degrees(1, 6),
       "parallel.tensor_parallel_degree 1 x pipeline_parallel_degree 6 = 6 does not divide the 8 ranks; any of these "
       "would fit: 6 or 12 ranks; parallel.pipeline_parallel_degree = 1 or 2 or 4"},
      // The shard degree stays as it is asked for.
      {8, degrees(3, 1, 4),
       "parallel.tensor_parallel_degree 3 x pipeline_parallel_degree 1 = 3 does not divide the 8 ranks; any of these "
       "would fit: 12 or 24 ranks; parallel.tensor_parallel_degree = 1 or 2"},
      {4,
       [&](ParallelConfig& p) {
         degrees(1, 3)(p);
         p.layers_per_stage = "1 2 3";
       },
       "parallel.tensor_parallel_degree 1 x pipeline_parallel_degree 3 = 3 does not divide the 4 ranks; any of these "
       "would fit: 3 or 6 ranks"},
      // Three stages are listed, and four sharers do not fit nodes of three whatever the number of ranks.
      {4,
       [&](ParallelConfig& p) {
         degrees(1, 3, 4)(p);
         p.layers_per_stage = "1 2 3";
         p.hierarchical_allgather = true;
         p.ranks_per_node = 3;
       },
       "parallel.tensor_parallel_degree 1 x pipeline_parallel_degree 3 = 3 does not divide the 4 ranks; any of these "
       "would fit: the defaults of [parallel]"},
      {6, degrees(1, 1, 4),
       "parallel.sharded_data_parallel_degree = 4 does not divide the 6 data-parallel ranks that remain after "
       "tensor_parallel_degree 1 x pipeline_parallel_degree 1 of 6 ranks; any of these would fit: 4 or 8 ranks; "
       "parallel.sharded_data_parallel_degree = 1 or 2 or 3 or 6"},
      {12, degrees(2, 2, 2),
       "parallel.sharded_data_parallel_degree = 2 does not divide the 3 data-parallel ranks that remain after "
       "tensor_parallel_degree 2 x pipeline_parallel_degree 2 of 12 ranks; any of these would fit: 8 or 16 ranks; "
       "parallel.tensor_parallel_degree = 1 or 3; parallel.pipeline_parallel_degree = 1 or 3; "
       "parallel.sharded_data_parallel_degree = 1 or 3"},
      {6,
       [&](ParallelConfig& p) {
         p.hierarchical_allgather = true;
         p.ranks_per_node = 4;
       },
       "parallel.hierarchical_allgather = true: shard groups of 6 ranks with a distance of 1 are neither inside nodes "
       "of parallel.ranks_per_node = 4 nor fill whole ones; any of these would fit: 4 or 8 ranks; "
       "parallel.tensor_parallel_degree = 6; parallel.pipeline_parallel_degree = 3 or 6; "
       "parallel.sharded_data_parallel_degree = 1 or 2; parallel.ranks_per_node = 1 or 2 or 3 or 6; "
       "parallel.hierarchical_allgather = false"},
  };
  for (const Case& c : cases) EXPECT_EQ(message_of([&] { mesh_shape(with(c.change), c.ranks); }), c.message);
}

// Counts rank by rank what mesh.h needs of a hierarchical gather: every shard group has the same number of ranks on
// each node it touches, all groups the same, and where that is neither one nor all, the mesh gathers in two levels.
bool gathers_by_nodes(const MeshShape& mesh) {
  std::set<int> counts;
  for (int rank = 0; rank < mesh.size(); rank++) {
    const int group = mesh.position(rank, Channel::shard).group;
    int together = 0;
    for (int other = 0; other < mesh.size(); other++)
      together += mesh.position(other, Channel::shard).group == group && mesh.node(other) == mesh.node(rank);
    counts.insert(together);
  }
  const int count = *counts.begin();
  return counts.size() == 1 && (count == 1 || count == mesh.shard || mesh.shard_nodes() == mesh.shard / count);
}

TEST(Layout, AHierarchicalGatherFitsItsNodesInAnyPlacement) {
  std::vector<std::string> axes{"data", "pipeline", "shard", "tensor"};
  int fits = 0, refused = 0;
  do
    for (const int64_t shard : {2, 4})
      for (int64_t node = 1; node <= 16; node++) {
        Config config = base();
        ParallelConfig& p = config.parallel;
        p.tensor_parallel_degree = p.pipeline_parallel_degree = 2;
        p.sharded_data_parallel_degree = shard;
        p.placement = fmt::format("{}", fmt::join(axes, ","));
        p.ranks_per_node = node;
        const bool gathers = gathers_by_nodes(mesh_shape(config, 16));
        p.hierarchical_allgather = true;
        EXPECT_EQ(!error_of([&] { mesh_shape(config, 16); }), gathers) << p.placement << " on nodes of " << node;
        (gathers ? fits : refused)++;
      }
  while (std::ranges::next_permutation(axes).found);
  EXPECT_GT(fits, 100);
  EXPECT_GT(refused, 100);
}

bool keeps_the_rules(const Config& config) {
  return !error_of([&] { validate(config); });
}

struct Sweep {
  int accepted = 0, refused = 0, proposals = 0;

  static bool fits(const Config& config, int ranks) {
    if (!keeps_the_rules(config)) return false;
    return !error_of([&] { mesh_shape(config, ranks); });
  }

  void propose(const Config& config, int ranks, const std::string& message) {
    proposals++;
    EXPECT_TRUE(fits(config, ranks)) << message << "\n  proposes what is refused with: "
                                     << *error_of([&] { validate(config), mesh_shape(config, ranks); });
  }

  // One of "4 or 8 ranks", "parallel.KEY = 1 or 2", "parallel.hierarchical_allgather = false", "the defaults of
  // [parallel]".
  void check_way_out(const Config& config, int ranks, const std::string& way, const std::string& message) {
    static const std::map<std::string, int64_t ParallelConfig::*> keys = {
        {"tensor_parallel_degree", &ParallelConfig::tensor_parallel_degree},
        {"pipeline_parallel_degree", &ParallelConfig::pipeline_parallel_degree},
        {"sharded_data_parallel_degree", &ParallelConfig::sharded_data_parallel_degree},
        {"ranks_per_node", &ParallelConfig::ranks_per_node}};
    Config other = config;
    if (way == "the defaults of [parallel]") {
      other.parallel = {};
      return propose(other, ranks, message);
    }
    if (way == "parallel.hierarchical_allgather = false") {
      other.parallel.hierarchical_allgather = false;
      propose(other, ranks, message);
      if (message.starts_with("parallel.hierarchical_allgather")) {
        EXPECT_FALSE(gathers_by_nodes(mesh_shape(other, ranks))) << message;
      }
      return;
    }
    const auto key = std::ranges::find_if(
        keys, [&](const auto& entry) { return way.starts_with("parallel." + entry.first + " = "); });
    const bool of_a_key = key != keys.end();
    ASSERT_TRUE(of_a_key || way.ends_with(" ranks")) << way << " in " << message;
    std::istringstream words(way);
    for (std::string word; words >> word;) {
      if (!std::isdigit(static_cast<unsigned char>(word[0]))) continue;
      const int value = std::stoi(word);
      if (of_a_key) other.parallel.*key->second = value;
      propose(other, of_a_key ? ranks : value, message);
    }
  }

  // What one of the degrees alone could be is said.
  void check_none_is_missed(const Config& config, int ranks, const std::string& message) {
    using P = ParallelConfig;
    for (const auto& [name, degree] : {std::pair{"parallel.tensor_parallel_degree = ", &P::tensor_parallel_degree},
                                       {"parallel.pipeline_parallel_degree = ", &P::pipeline_parallel_degree},
                                       {"parallel.sharded_data_parallel_degree = ", &P::sharded_data_parallel_degree}})
      for (int value = 1; value <= ranks; value++) {
        Config other = config;
        other.parallel.*degree = value;
        if (fits(other, ranks)) {
          ASSERT_NE(message.find(name, message.find(ways)), message.npos) << message << "\n  but " << name << value;
        }
      }
  }

  void operator()(const Config& config, int ranks) {
    const ParallelConfig& p = config.parallel;
    std::string message;
    try {
      const MeshShape mesh = mesh_shape(config, ranks);
      accepted++;
      ASSERT_EQ(mesh.size(), ranks);
      ASSERT_EQ(mesh.tensor, p.tensor_parallel_degree);
      ASSERT_EQ(mesh.pipeline, p.pipeline_parallel_degree);
      const int64_t all = ranks / mesh.tensor / mesh.pipeline, degree = p.sharded_data_parallel_degree;
      ASSERT_EQ(mesh.shard, p.sharding_strategy == ShardingStrategy::no_shard ? 1 : degree == 0 ? all : degree);
      ASSERT_TRUE(!p.hierarchical_allgather || gathers_by_nodes(mesh)) << "on nodes of " << p.ranks_per_node;
      return;
    } catch (const Error& error) {
      message = error.what();
    }
    refused++;
    ASSERT_NE(message.find(ways), message.npos) << message;
    const int before = proposals;
    for (size_t at = message.find(ways) + ways.size(); at < message.size();) {
      const size_t end = std::min(message.find("; ", at), message.size());
      check_way_out(config, ranks, message.substr(at, end - at), message);
      at = end + 2;
    }
    ASSERT_GT(proposals, before) << message;
    if (refused % 16 == 0) check_none_is_missed(config, ranks, message);  // it makes many more refusals
  }

  const std::string ways = "; any of these would fit: ";
};

TEST(Layout, EveryProductIsLaidOutOrRefusedWithWhatIsAccepted) {
  struct NamedChange {
    const char* name;
    std::function<void(Config&)> change;
  };
  const NamedChange variants[] = {
      {"plain", [](Config&) {}},
      {"no_shard", [](Config& c) { c.parallel.sharding_strategy = ShardingStrategy::no_shard; }},
      {"virtual stages", [](Config& c) { c.parallel.virtual_stages = 2; }},
      {"sequence parallel",
       [](Config& c) {
         c.parallel.sequence_parallel = true;
         c.batch.sequence_length = 9;
       }},
      {"batch for each tensor rank",
       [](Config& c) {
         c.parallel.prescaled_batch = false;
         c.batch.global_batch_size = 6;
       }},
  };
  const int64_t stride = taken("Layout.EveryProductIsLaidOutOrRefusedWithWhatIsAccepted");
  for (const NamedChange& variant : variants) {
    SCOPED_TRACE(variant.name);
    Sweep sweep;
    for (int tensor = 1; tensor <= 8; tensor++)
      for (int pipeline = 1; pipeline <= 8; pipeline++)
        for (int shard : {0, 1, 2, 3, 4}) {
          Config config = base();
          variant.change(config);
          config.parallel.tensor_parallel_degree = tensor;
          config.parallel.pipeline_parallel_degree = pipeline;
          config.parallel.sharded_data_parallel_degree = shard;
          if ((tensor + 3 * pipeline + shard) % stride != 0) continue;
          if (!keeps_the_rules(config)) continue;
          for (int ranks = 1; ranks <= 16; ranks++) {
            sweep(config, ranks);
            if (HasFatalFailure()) return;
          }
        }
    EXPECT_GT(sweep.accepted, 20 / stride);
    EXPECT_GT(sweep.refused, 100 / stride);
    EXPECT_GT(sweep.proposals, 200 / stride);
  }
}

TEST(Layout, HierarchicalGathersFitTheirNodes) {
  const int64_t stride = taken("Layout.HierarchicalGathersFitTheirNodes");
  Sweep sweep;
  for (const char* placement :
       {"tensor shard data pipeline", "data tensor shard pipeline", "shard data tensor pipeline"})
    for (int tensor : {1, 2, 3})
      for (int pipeline : {1, 2})
        for (int shard : {0, 2, 3, 4})
          for (int node : {0, 1, 2, 3, 4, 6, 8})
            for (int ranks = 1; ranks <= 16; ranks++) {
              if ((tensor + shard + node + ranks) % stride != 0) continue;
              Config config = base();
              config.parallel.hierarchical_allgather = true;
              config.parallel.placement = placement;
              config.parallel.tensor_parallel_degree = tensor;
              config.parallel.pipeline_parallel_degree = pipeline;
              config.parallel.sharded_data_parallel_degree = shard;
              config.parallel.ranks_per_node = node;
              sweep(config, ranks);
              if (HasFatalFailure()) return;
            }
  EXPECT_GT(sweep.accepted, 500 / stride);
  EXPECT_GT(sweep.refused, 500 / stride);
}

}  // namespace
}  // namespace megalith
