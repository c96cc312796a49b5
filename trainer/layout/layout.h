// From degrees (configs/degrees.h) to the mesh: the number of ranks on each axis, and the order of the axes.
#pragma once

#include "configs/config.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

// Returns the mesh of a valid Config, the same on every rank. Errors as in configs/degrees.h.
MeshShape mesh_shape(const Config& config, int num_ranks);

}  // namespace megalith
