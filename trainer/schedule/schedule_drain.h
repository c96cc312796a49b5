// Distinguishes orders that finish from orders that deadlock, when memory for messages is bounded.
#pragma once

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

// Follows the lists as stages do whose sends end only when the receiver reaches them. A forward waits until the last
// message sent from its slot is received and until one of its outputs is free; an input half waits for a free gradient
// (ChunkPlacement::outputs and gradients). Returns whether all lists finish.
bool come_to_their_ends(const PipelineShape& shape, const std::vector<Actions>& lists);

}  // namespace megalith
