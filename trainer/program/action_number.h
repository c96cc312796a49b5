// Actions of a stage as numbers, by which a trace says of each op to which action it belongs (kernels/stream/trace.h).
#pragma once

#include <string>

#include "trainer/program/program.h"

namespace megalith {

// Returns the number of the action that the instruction is part of, or -1 where it is part of none: what moves data,
// adds up losses or updates weights.
int32_t action_number(const Plan& plan, const Instruction& i);

// Returns the action of such a number, of a stage of so many chunks.
Action action_of(int32_t number, int64_t virtual_stages);

// Returns "F3.1" for the forward pass of microbatch 3 through chunk 1 of the stage, "B3.1" for its backward pass or the
// half of that for inputs, "W3.1" for the half for weights; with one chunk a stage "F3".
std::string name_of(const Action& action, int64_t virtual_stages);

}  // namespace megalith
