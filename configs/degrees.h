// How the ranks of a job are divided among the axes of its mesh:
//
//   tensor * pipeline divides the ranks; what remains are the data-parallel ranks;
//   shard of them share one copy of the state: parallel.sharded_data_parallel_degree, or all; one under no_shard;
//   data is the number of copies.
//
// Only under hierarchical_allgather do nodes limit the degrees: each shard group lies inside a node, or has as many
// ranks on every node that it touches, filling the nodes or with one rank on each.
#pragma once

#include "configs/config.h"

namespace megalith {

struct Degrees {
  int64_t tensor = 1, shard = 1, data = 1, pipeline = 1;
};

// Of a valid Config; a pure function, the same on every rank. Error: what does not fit, the numbers, and what would fit
// instead: numbers of ranks and values of single keys, each of which validate() and this function accept with the rest
// of the Config as it is.
Degrees degrees(const Config& config, int64_t num_ranks);

}  // namespace megalith
