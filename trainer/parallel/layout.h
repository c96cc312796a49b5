// From degrees to a mesh: how many ranks stand on each axis, and in which order. A pure function of config and number
// of ranks, the same on every rank.
//
//   tensor * pipeline divides the ranks; what remains are the data-parallel ranks;
//   shard of them share one copy of the state: parallel.sharded_data_parallel_degree, or all; one under no_shard;
//   data is the number of copies.
//
// The config is a validated one: what needs no number of ranks (heads, layers, rows) was checked there. Only under
// hierarchical_allgather do nodes limit the degrees: each shard group lies inside a node, or has as many ranks on every
// node that it touches, filling the nodes or with one rank on each.
#pragma once

#include "configs/config.h"
#include "trainer/communication/mesh.h"

namespace megalith {

// Error names the numbers and the nearest degrees and numbers of ranks that would do. All it names would be accepted by
// validate() and by this function, with the rest of the config as it is.
MeshShape mesh_shape(const Config& config, int num_ranks);

}  // namespace megalith
