// The division of a job's ranks among the axes of its mesh:
//
//   tensor * pipeline divides the ranks; what remains are the data-parallel ranks;
//   shard of them share one copy of the state: parallel.sharded_data_parallel_degree, or all; one under no_shard;
//   data is the number of copies.
//
// Nodes limit the degrees only under hierarchical_allgather: each shard group is inside one node, or has equally many
// ranks on every node that it touches, filling the nodes or with one rank on each.
#pragma once

#include "configs/config.h"

namespace megalith {

struct Degrees {
  int64_t tensor = 1, shard = 1, data = 1, pipeline = 1;
};

// A pure function of a valid Config, the same on every rank. Error: what does not fit, the numbers, and which would:
// numbers of ranks and values of single keys, each of which is accepted with the rest of the Config unchanged.
Degrees degrees(const Config& config, int64_t num_ranks);

}  // namespace megalith
