// Checks the distribution of a job's ranks over its nodes. Code that distinguishes nodes (mesh.h) relies on every node
// having the same number of ranks, one node filled after the other.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

struct NodePosition {
  int rank_on_node = 0, ranks_on_node = 1;
};

// Returns how the ranks differ from that, or "".
std::string why_out_of_order(const std::vector<NodePosition>& of_all_ranks);

struct NodeLayout {
  Config config;
  std::string warning;  // why the plan ignores nodes; empty: it does not
};

// Collective. Returns the config for the plan, with parallel.ranks_per_node = 0 replaced by the launched number.
// JobError if hierarchical gathers are requested and the ranks are not in this order.
NodeLayout node_layout(Config config, const Session& session);

}  // namespace megalith
