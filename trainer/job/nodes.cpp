#include "trainer/job/nodes.h"

#include <nlohmann/json.hpp>

#include "trainer/job/agreement.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodePosition, rank_on_node, ranks_on_node)

std::string why_out_of_order(const std::vector<NodePosition>& of_all_ranks) {
  const int each = of_all_ranks.front().ranks_on_node;
  for (size_t r = 0; r < of_all_ranks.size(); r++) {
    const auto [position, there] = of_all_ranks[r];
    if (there != each)
      return fmt::format("rank 0 is on a node with {} ranks and rank {} on one with {}", each, r, there);
    // By induction over the nodes, all of these are true only if each node has the next `each` ranks.
    if (const int in_order = static_cast<int>(r) % each; position != in_order)
      return fmt::format("rank {} is number {} on a node with {} ranks, where it would be number {} in order", r,
                         position, each, in_order);
  }
  return "";
}

NodeLayout node_layout(Config config, const Session& session) {
  const std::vector<NodePosition> positions =
      of_all_ranks(session, NodePosition{session.rank_on_this_node(), session.ranks_on_this_node()});
  NodeLayout result{std::move(config), ""};
  ParallelConfig& parallel = result.config.parallel;
  if (parallel.ranks_per_node > 0) return result;
  const std::string why = why_out_of_order(positions);
  if (why.empty()) {
    parallel.ranks_per_node = session.ranks_on_this_node();
    return result;
  }
  const char* remedy =
      "start as many ranks on every node, each node filled before the next (mpirun --map-by ppr:N:node)";
  together(session, [&] {
    CHECK(!parallel.hierarchical_allgather,
          "parallel.hierarchical_allgather = true, but {}; {}, or set parallel.hierarchical_allgather = false", why,
          remedy);
  });
  result.warning = fmt::format(
      "{}; the plan assumes consecutive ranks on nodes, so transfers planned inside a node may leave it: {}", why,
      remedy);
  return result;
}

}  // namespace megalith
