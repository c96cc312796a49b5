// Checks how the ranks of a job lie on its nodes. Code that tells nodes apart (mesh.h) relies on every node holding the
// same number of ranks, one node filled after the other.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

struct NodePosition {
  int rank_on_node = 0, ranks_on_node = 1;
};

// Returns why the ranks do not lie like that, or "" where they do.
std::string why_out_of_order(const std::vector<NodePosition>& of_all_ranks);

struct NodeLayout {
  Config config;
  std::string warning;  // why the plan ignores nodes; empty: it does not
};

// Collective. Returns the config to plan by, with parallel.ranks_per_node = 0 replaced by the launched number. JobError
// where hierarchical gathers are asked for and the ranks do not lie in order.
NodeLayout node_layout(Config config, const Session& session);

}  // namespace megalith
