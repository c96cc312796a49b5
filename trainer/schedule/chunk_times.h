// The times by which a schedule is made whose backward passes have two halves. They follow from the config alone, so
// that all ranks make the same lists on any machine: floating-point operations, and bytes that wait for links as the
// operations that a GPU does meanwhile.
#pragma once

#include <vector>

#include "configs/config.h"
#include "trainer/communication/mesh_shape.h"
#include "trainer/schedule/schedule.h"

namespace megalith {

// In thousandths of the products of a layer's forward pass, by chunk of the model, which have so many layers. Products
// count, and attention, which takes two products of the forward pass and five of the backward pass; what is recomputed
// belongs to the half for inputs; the head does all of its work in the forward pass; tensor-parallel sums belong to the
// forward pass and to the half for inputs.
std::vector<ChunkTimes> chunk_times(const Config& config, const MeshShape& mesh, const std::vector<int64_t>& layers);

// How long a message between stages takes, in the same units.
int64_t message_time(const Config& config, const MeshShape& mesh);

}  // namespace megalith
