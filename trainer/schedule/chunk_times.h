// Estimated times for schedules whose backward passes have two halves. They follow from the config, so that all ranks
// make the same lists on any machine. The unit is floating-point operations; transfers count as the operations that a
// GPU does meanwhile.
#pragma once

#include <vector>

#include "configs/config.h"
#include "trainer/communication/mesh_shape.h"
#include "trainer/schedule/schedule.h"

namespace megalith {

// Returns the times of the model's chunks, with this many layers each, in thousandths of the products of a layer's
// forward pass. Counted are products, and attention, which takes two products of the forward pass and five of the
// backward pass. Recomputation belongs to the input half; the head does all of its work in the forward pass;
// tensor-parallel sums belong to the forward pass and to the input half.
std::vector<ChunkTimes> chunk_times(const Config& config, const MeshShape& mesh, const std::vector<int64_t>& layers);

// Returns the time of a message between stages, in the same units.
int64_t message_time(const Config& config, const MeshShape& mesh);

}  // namespace megalith
