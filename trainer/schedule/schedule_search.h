// Orders of pipelines whose backward passes have two halves: that of given lists, and faster ones that searches find.
// All are pure functions of their arguments, so that all ranks find the same.
#pragma once

#include <optional>

#include "trainer/schedule/schedule_clock.h"

namespace megalith {

// Returns lists with the forwards of the given ones, and their backwards as input halves, in their order; weight halves
// fill the time in which stages would wait. Tries four ways to fill it and returns the fastest on the clock
// (schedule_clock.h).
HalvesRun in_given_order(const PipelineShape& shape, const std::vector<Actions>& lists);

// Searches for an order of chunks in turn. It varies the groups of microbatches that pass one chunk after the other,
// whose sizes may differ from the number of stages; the number of forwards before the first backward; whether a stage
// swaps a forward and a backward if one is late; and when a stage prefers a weight half to waiting. It is a local
// search by random changes, from a fixed seed. Active microbatches must be unbounded. Returns lists, by stage, that
// take less than `time` and hold no more on any stage than `most`; nullopt if it finds none. It searches on a short
// step, whose order a step of many microbatches repeats.
std::optional<std::vector<Actions>> search_order(const PipelineShape& shape, const HeldChunks& most, int64_t time);

// As above for a V, whose chunks have their own channels, so that each stage does what can begin first. It varies which
// chunk comes first if two can begin, and as above when to do backwards and weight halves. Each chunk of each stage may
// have as many microbatches alive as in the `given` lists, plus the excess of shape.active_microbatches over
// shape.stages.
std::optional<std::vector<Actions>> search_v_order(const PipelineShape& shape, const std::vector<Actions>& given,
                                                   int64_t time);

// Returns a lower bound of the time of any order: each stage must do its work after the first microbatch has reached
// it, and a sum of gradients follows its last action.
int64_t least_time(const PipelineShape& shape);

}  // namespace megalith
