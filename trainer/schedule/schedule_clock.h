// Runs all stages of a pipeline against one clock: a rule says which action a stage prefers, and the clock finds the
// order in which it executes them. Backward passes have two halves; a whole one is a half for inputs, and a half for
// weights that takes no time. An order that has run on a clock cannot deadlock.
#pragma once

#include <vector>

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

// A stage does what it prefers as soon as it can; while it cannot, the next action of the other direction if it
// `swaps` and that has arrived; else the oldest half for weights that is left, unless what it prefers arrives before so
// many quarters of that have passed; else it waits for the first to arrive. A forward cannot begin while that would
// make more than `most.chunks` chunks of microbatches hold memory on the stage, between their forward and their half
// for weights, or more than `most.memory`.
struct HeldChunks {
  int64_t chunks = never, memory = never;
};

// Returns what a chunk of the model holds of a microbatch, in units of any size: its layers, for which the time of its
// half for weights stands.
inline int64_t memory_of(const PipelineShape& shape, int64_t model_chunk) {
  return shape.times_of(model_chunk).weights;
}

struct HalvesRule {
  struct Stage {
    // Not owned: the orders of its forwards and of its backwards, which are always kept. Of several orders of one
    // kind, such as one for each chunk, it takes what can begin first, and the earlier order's where two can.
    std::vector<const Actions*> forwards, backwards;
    // Not owned: all of them in the order that it prefers. Null: forwards until they are more than warm_up ahead of
    // the backwards, then a backward.
    const Actions* list = nullptr;
    int64_t warm_up = 0;
    // By chunk, the most microbatches between their forward and their half for inputs, and up to that for weights;
    // none: unbounded.
    std::vector<int64_t> most_alive{}, most_held{};
  };
  std::vector<Stage> stages;
  HeldChunks most;
  int64_t quarters = 0;
  bool swaps = false;  // by warm-up; forwards are then at most warm_up + 1 + slack ahead
  int64_t slack = 0;
  // A forward also waits until its output and its slot in memory are free, and a half for inputs until its output is,
  // as under come_to_their_ends (schedule_drain.h). most_alive must then be set.
  bool waits_for_room = false;
  int64_t limit = never;  // a run that would end after it is given up
};

// Returns the most that any stage holds under lists of forwards and whole backwards.
HeldChunks most_held(const PipelineShape& shape, const std::vector<Actions>& lists);

struct HalvesRun {
  std::vector<Actions> lists;  // by stage; none where the run was given up, or the rule let no stage go on
  int64_t time = never;        // of the stage that ends last
};

// Every forward and backward of the rule's orders is run, by shape.times and shape.message.
HalvesRun run_halves(const PipelineShape& shape, const HalvesRule& rule);

}  // namespace megalith
