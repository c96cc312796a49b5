// This tells orders that come to their ends from orders that deadlock, where memory for messages is bounded.
#pragma once

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

// Follows the lists as stages do whose sends end only once their receiver has come to them: a forward waits until what
// was last sent from its slot is received, and until one of its outputs is free; so does what a half for inputs
// receives (ChunkPlacement::outputs and gradients). Returns whether all come to their ends.
bool come_to_their_ends(const PipelineShape& shape, const std::vector<Actions>& lists);

}  // namespace megalith
