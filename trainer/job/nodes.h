// On which nodes the ranks of a job lie. Whatever tells nodes apart (mesh.h) counts on all of them holding as many
// ranks, one node filled after the other.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

struct NodePosition {
  int rank_on_node = 0, ranks_on_node = 1;
};

// Why the ranks do not lie like that; empty where they do.
std::string why_out_of_order(const std::vector<NodePosition>& of_all_ranks);

struct NodeLayout {
  Config config;
  std::string warning;  // for the log: the ranks lie otherwise, and the plan knows of one node only
};

// Collective. The config to plan by: parallel.ranks_per_node = 0 becomes what was launched. JobError: hierarchical
// gathers are asked for, and the ranks lie otherwise.
NodeLayout node_layout(Config config, const Session& session);

}  // namespace megalith
