// Searches for an order of a pipeline whose backward passes have two halves: groups of microbatches that pass one chunk
// after the other, not all as large as there are stages; more or fewer forwards before the first backward; forwards and
// backwards that a stage swaps where one comes late; and when a stage does a half for weights rather than wait.
#pragma once

#include <optional>

#include "trainer/parallel/schedule_clock.h"

namespace megalith {

// Returns lists, by stage, that take less than `time` on the clock (schedule_clock.h) and hold no more on any stage
// than `most`; nothing where it finds none. Chunks must be placed in turn, and active microbatches be unbounded. It is
// a function of its arguments alone: local search by drawn changes, from a seed that never changes. What it has found
// for other lengths of the same step is known to it, for a step of many microbatches repeats what a short one does.
std::optional<std::vector<Actions>> search_order(const PipelineShape& shape, const HeldChunks& most, int64_t time);

// No order takes less: each stage has to do its work once the first microbatch has come to it, and a sum of gradients
// follows its last action.
int64_t least_time(const PipelineShape& shape);

}  // namespace megalith
