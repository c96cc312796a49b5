// Actions of a stage as numbers, which a trace stores with each op (kernels/stream/trace.h).
#pragma once

#include <string>

#include "trainer/program/program.h"

namespace megalith {

// Returns the number of the action to which the instruction belongs, or -1 if it belongs to none: it moves data, adds
// up losses or updates weights.
int32_t action_number(const Plan& plan, const Instruction& i);

// Returns the action of such a number, of a stage with this many chunks.
Action action_of(int32_t number, int64_t virtual_stages);

// Returns "F3.1" for the forward pass of microbatch 3 through chunk 1 of the stage, "B3.1" for its backward pass or the
// input half of it, "W3.1" for the weight half; "F3" if stages have one chunk.
std::string name_of(const Action& action, int64_t virtual_stages);

}  // namespace megalith
