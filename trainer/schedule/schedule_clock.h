// Runs all stages of a pipeline against one clock: a rule gives the action that a stage prefers, and the clock finds
// the order in which it executes them. Backward passes have two halves; a whole one is an input half, and a weight half
// that takes no time. An order that has run on a clock cannot deadlock.
#pragma once

#include <vector>

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

// Whenever it is free, a stage does the first of these that is possible:
// 1. its preferred action, if ready;
// 2. with `swaps`, the next action of the other direction, if ready;
// 3. the oldest weight half, unless the preferred action becomes ready within quarters/4 of its length;
// 4. wait for the first to become ready.
// A forward cannot begin while it would raise the chunks of microbatches that hold memory on the stage, between forward
// and weight half, above `most.chunks`, or their memory above `most.memory`.
struct HeldChunks {
  int64_t chunks = never, memory = never;
};

// Returns the memory of a microbatch in a chunk of the model, in any unit: its layers, in proportion to the time of the
// weight half.
inline int64_t memory_of(const PipelineShape& shape, int64_t model_chunk) {
  return shape.times_of(model_chunk).weights;
}

struct HalvesRule {
  struct Stage {
    // Not owned: the fixed orders of its forwards and of its backwards. Of several orders of one kind, such as one for
    // each chunk, it takes the action that can begin first; of two that can, that of the earlier order.
    std::vector<const Actions*> forwards, backwards;
    // Not owned: all actions in the preferred order. Null: forwards until they are more than warm_up ahead of the
    // backwards, then a backward.
    const Actions* list = nullptr;
    int64_t warm_up = 0;
    // Per chunk: most microbatches between forward and input half (most_alive), forward and weight half (most_held).
    // Empty: no limit.
    std::vector<int64_t> most_alive{}, most_held{};
  };
  std::vector<Stage> stages;
  HeldChunks most;
  int64_t quarters = 0;
  bool swaps = false;  // by warm-up; forwards are then at most warm_up + 1 + slack ahead
  int64_t slack = 0;
  // A forward also waits until its output and its slot in memory are free, and an input half until its output is, as in
  // come_to_their_ends (schedule_drain.h). most_alive must then be set.
  bool waits_for_room = false;
  int64_t limit = never;  // a run that would end after it is given up
};

// Returns the most that any stage holds under lists of forwards and whole backwards.
HeldChunks most_held(const PipelineShape& shape, const std::vector<Actions>& lists);

struct HalvesRun {
  std::vector<Actions> lists;  // by stage; empty if the run was given up, or the rule deadlocks
  int64_t time = never;        // end of the last stage
};

// Runs every forward and backward of the rule's orders, with shape.times and shape.message.
HalvesRun run_halves(const PipelineShape& shape, const HalvesRule& rule);

}  // namespace megalith
