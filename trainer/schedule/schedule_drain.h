// This tells orders that come to their ends from orders that deadlock, where memory for messages is bounded.
#pragma once

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

// Follows the lists as stages do whose sends end only once their receiver has reached them. A forward waits until the
// last message sent from its slot is received and until one of its outputs is free; a half for inputs waits for a free
// gradient (ChunkPlacement::outputs and gradients). Returns whether all lists come to their ends.
bool come_to_their_ends(const PipelineShape& shape, const std::vector<Actions>& lists);

}  // namespace megalith
