// How many pieces products are cut into, so that the transfers of the tensor-parallel group overlap with them
// (parallel.tensor_pieces).
#pragma once

#include "configs/config.h"
#include "configs/hardware.h"

namespace megalith {

// Returns the number of pieces with which the products of a layer that the config's schedule cuts, and their transfers,
// take least time, estimated for each separately. More pieces hide more, but each waits for the ring anew, and fills
// the last wave of a GPU's processors less. 0 with one tensor-parallel rank, and on CPUs, whose transfers need the
// cores that compute.
int64_t best_tensor_pieces(const Config& config, const Hardware& hardware, int num_ranks);

}  // namespace megalith
