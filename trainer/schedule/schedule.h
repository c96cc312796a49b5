// A schedule is a list of actions that a stage of the pipeline executes, and a pure function of its inputs.
// chunk_placement.h decides which chunks of the model's layers a stage runs.
//
// Laws, of every list that make_schedules returns:
// - Each (microbatch, chunk) has one forward and, later, one backward; or, if the backward pass has two halves, an
//   input half (the gradient of the input) and, later, a weight half (the gradients of the weights).
// - Each chunk takes its microbatches in ascending order, both ways; the last backward of a chunk is that of the last
//   microbatch. If chunks run in turn, the forwards are in one order and the backwards in another, each the same on all
//   stages; in a V the chunks have their own channels. So messages between two stages need no tags.
// - Weight halves are in the order of input halves: sums over microbatches have one order in all schedules.
// - So the microbatches that a chunk keeps alive are always consecutive, and with live_microbatches(...) slots, slot
//   microbatch % live is free when a microbatch's forward comes.
// - Stages that send without waiting, and receive in the order of their actions, never deadlock, also if a send ends
//   only once it is received, and a forward waits for the sends that last used its slot.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/config.h"
#include "trainer/schedule/chunk_placement.h"

namespace megalith {

struct Action {
  enum class Kind : uint8_t { forward, backward, backward_input, backward_weight };
  Kind kind;
  int64_t microbatch;
  int64_t chunk = 0;  // this stage's
  bool operator==(const Action&) const = default;
};

// The times of a chunk's forward pass, input half and weight half, in any unit; and of the sum of its gradient over
// ranks, which follows its last weight half and overlaps with all work.
struct ChunkTimes {
  int64_t forward = 1, input = 1, weights = 1, sum = 0;
};

struct PipelineShape {
  int64_t stages = 1;
  int64_t virtual_stages = 1;  // chunks a stage; more than 1 requires more than one stage, a V has 2
  int64_t microbatches = 1;
  // The maximum number of live microbatches on any stage, from their first forward there to their last backward there.
  // 0: the number that the schedule needs, which is `stages`, 2 * stages with several chunks a stage, and all of them
  // under gpipe. Under zb_v, where most microbatches hold one of a stage's two chunks at a time, it allows twice as
  // many chunks of microbatches, and at least `stages`; v_half does not use it.
  int64_t active_microbatches = 0;
  PipelineSchedule kind = PipelineSchedule::one_f_one_b;
  std::vector<ChunkTimes> times{};  // by chunk of the model, for schedules with halves; empty: equal times
  int64_t message = 0;              // time of a message between stages, in the same units

  ChunkTimes times_of(int64_t model_chunk) const {
    return times.empty() ? ChunkTimes{} : times[static_cast<size_t>(model_chunk)];
  }
  ChunkPlacement placement() const { return {stages, virtual_stages, is_v_shaped(kind)}; }
  // Returns whether the backward pass has two halves. A single stage never has them, since it does not wait.
  bool in_halves() const { return has_halves(kind) && stages > 1; }
};

// Returns one training step of each stage.
// A single stage: F0 B0 F1 B1 ...
// one_f_one_b: Narayanan et al., arXiv 2104.04473, section 2.2: forwards to warm up, then one forward, one backward,
//   then the remaining backwards; at most stages - stage microbatches are alive. With several chunks a stage it is
//   interleaved: groups of min(stages, active_microbatches) pass chunk 0, then chunk 1, and so on.
// gpipe: Huang et al., arXiv 1811.06965: all forwards, then all backwards, in waves of active_microbatches. If a stage
//   has several chunks, a wave passes chunk 0, then chunk 1, and so on.
// zb_h1: Qi et al., arXiv 2401.10241, section 3.1: forwards and input halves in the order of one_f_one_b's forwards and
//   backwards, with its chunks, or in a faster order that a search finds for `times` and `message`, unless
//   active_microbatches bounds it. Weight halves fill the time in which a stage would wait (schedule_clock.h,
//   schedule_search.h). Between forward and weight half, no stage has more chunks of microbatches, nor more of their
//   layers, than one_f_one_b has alive on its fullest stage. If forwards and halves take one unit of time each, only
//   (stages - 1) units are idle, of 3 * (stages - 1).
// zb_v, v_half: Qi et al., arXiv 2405.15362: the chunks as a V, with weight halves as in zb_h1. On each stage at most
//   2 * stages chunks of microbatches, 1f1b's memory, or at most stages + 2, are between forward and weight half. If
//   each takes one unit of time, zb_v leaves (stages - 1) units idle, of 6 * (stages - 1) in 1f1b with as many layers a
//   stage. Stages keep the order of that case, or a faster one that a search finds; under zb_v with more memory if
//   active_microbatches is above `stages`.
std::vector<std::vector<Action>> make_schedules(const PipelineShape& shape);

// Returns the schedule of an evaluation: forwards only, in groups of `stages`, or in a V by turns. No microbatch stays
// alive, and one slot a chunk suffices for any number of microbatches.
std::vector<Action> forward_schedule(const PipelineShape& shape, int64_t stage);

// Returns for each chunk the maximum number of microbatches between their forward and their backward, at least 1. If it
// has two halves, the backward is the input half or, with `weights`, the weight half.
std::vector<int64_t> live_microbatches(const std::vector<Action>& schedule, int64_t virtual_stages,
                                       bool weights = false);
// The maximum number of residuals where a V turns, at least 1: of outputs, each of which stays from the forward of
// chunk 0 to the backward of chunk 1, whose input it is; and of gradients, from that backward to the backward of chunk
// 0.
struct MostAtTurn {
  int64_t outputs = 1, gradients = 1;
};
MostAtTurn most_at_turn(const std::vector<Action>& schedule);

}  // namespace megalith
