// Orders of pipelines whose backward passes have two halves: that of given lists, and faster ones that searches find.
// All are functions of their arguments alone, so that all ranks find the same.
#pragma once

#include <optional>

#include "trainer/schedule/schedule_clock.h"

namespace megalith {

// Returns lists with the forwards of the given ones, and their backwards as halves for inputs, in their order; halves
// for weights fill the time in which stages would wait. Of four ways to fill it, the fastest on the clock
// (schedule_clock.h).
HalvesRun in_given_order(const PipelineShape& shape, const std::vector<Actions>& lists);

// Searches for an order of chunks in turn: groups of microbatches that pass one chunk after the other, not all as large
// as there are stages; more or fewer forwards before the first backward; forwards and backwards that a stage swaps
// where one comes late; and when a stage does a half for weights rather than wait. It is a local search by drawn
// changes, from a seed that never changes. Active microbatches must be unbounded. Returns lists, by stage, that take
// less than `time` and hold no more on any stage than `most`; nothing where it finds none. It searches on a
// short step, whose order a step of many microbatches repeats.
std::optional<std::vector<Actions>> search_order(const PipelineShape& shape, const HeldChunks& most, int64_t time);

// The same for a V, whose chunks have channels of their own, so that each stage does what can begin first: it tries
// which chunk goes first where two can begin, and as above when to do backwards and halves for weights. Each chunk of
// each stage has as many microbatches alive as in the `given` lists, and as many more as shape.active_microbatches is
// above shape.stages.
std::optional<std::vector<Actions>> search_v_order(const PipelineShape& shape, const std::vector<Actions>& given,
                                                   int64_t time);

// No order takes less: each stage has to do its work once the first microbatch has come to it, and a sum of gradients
// follows its last action.
int64_t least_time(const PipelineShape& shape);

}  // namespace megalith
