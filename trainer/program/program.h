// A Program is what one rank does in a step: a list of instructions that a Stage obeys one by one. Making the list is a
// pure function of the plan; whatever decides what is gathered, kept, sent or added up when, and where it lies, is
// decided here. The stage decides nothing.
//
// Instructions name memory by number:
//   residuals   tensors (R, C) of the compute type: inputs and outputs of layers, their gradients, messages
//   host        residuals in memory of the host, for what waits there
//   saved       what a layer keeps of its forward pass for its backward pass (BlockSaved, or its products). Where the
//               backward pass has two halves, the first leaves in other such memory what the second needs of it
//               (BlockGradients)
//   inputs      where it has, what products read: from the forward pass, or where that is computed again from then, on
//               to the second half (BlockSaved::take_inputs)
//   batches     tokens and targets of a microbatch; where its documents are kept apart, also where they begin, and
//               where dropout draws from memory, what it draws by; then layers name a batch as well
//   weight and gradient slots   of sharding.h
//   staging     buffers for the optimizer state of units whose state is on the host
// needs_of() reads off the list how many there are of each.
//
// Laws of every list (tests/pure/program_test.cpp runs the lists of all ranks against each other, without tensors):
// - Weights are gathered before they are used, and layers that share slots are gathered into at most plan.live_units.
// - A residual is not written while it is on its way or still to be read; what is saved is used once.
// - Each microbatch counts once in the gradient of each unit, which is scattered and summed when it is complete.
// - Each element is updated once, from a finished gradient, after the decision, and where its state is.
// - Messages are received in the order in which they are sent, each in its own direction, and none is left.
// - All ranks of a shard, data or tensor group make the same calls to it in the same order.
#pragma once

#include "trainer/layout/plan.h"

namespace megalith {

struct Instruction {
  enum class Op : uint8_t {
    // Weights, over the shard axis; await orders what follows after the gather.
    gather,        // unit, slot
    await_gather,  // unit, slot
    // Gradients; unit may be Plan::head_share(). Slot none: of a unit that is not sharded, in its own memory.
    zero,     // unit, slot, all: the slot is the unit's from here on, and 0, or only where no product writes first
    scatter,  // unit, slot, add: sends the slot off, into the unit's gradient or, to be added, beside it; the unit may
              // then be zeroed in another slot
    relay,    // unit, slot: where gradients in bf16 are added up in each node first: awaits that and sends the sums on
    collect,  // unit, slot, add: awaits that
    sum_copies,  // unit: over the data axis
    share_sums,  // unit, of gradients in bf16: awaits the parts that sum_copies has sent, adds them up and sends off
                 // the sums
    sum_tensor,  // unit: of what several tensor ranks, all or those of a key-value head, have a share in
    await_sums,  // all sums that were begun
    sum_tied,    // the token table: the shares of the two ends of the pipeline
    // Messages between stages, of residual y, and its copies to the host and back. A residual has one of them at a
    // time.
    receive,
    send,
    offload,         // y -> host
    fetch,           // host -> y
    await_transfer,  // y
    // Math of one microbatch; the weights used are those of the unit, of embedding and head those of the plan.
    load,         // batch
    embed,        // batch -> y
    forward,      // x -> y; saved, or none: nothing is kept
    recompute,    // x, saved: what that lacks, into scratch memory until a backward pass has used it, the one that was
                  // recomputed last first; saved none: all of forward, with y where the next layer recomputes too
    head,         // x, batch -> losses and gradient y
    head_loss,    // x, batch -> losses
    head_logits,  // x -> logits
    keep_loss,    // batch: the sum of its losses, by itself
    count_loss,   // batch: adds its losses to the sum of the step
    backward,     // x, saved (or none: what was recomputed last); gradient y in place
    backward_input,   // the same, but for the gradients of what products multiply with, without which it leaves held;
                      // apart: the others' stay there as well. held none: of a layer that is frozen
    backward_weight,  // inputs, held: those gradients, of the same microbatch
    embed_backward,   // batch; gradient y is used up
    // The update, from the finished gradients (update.h). Slots are staging buffers for optimizer state.
    norm,       // unit: this rank's share of the square sum of its gradient
    sum_norms,  // over all ranks, with the loss
    decide,     // whether weights are updated, and how far gradients are scaled
    // These are of units that Muon updates (matrices.h). Slots of exchanges are those of rounds that are under way.
    fetch_momentum,    // unit, part, slot: host -> slot
    momentum,          // unit, part, slot, or none: from the gradient, which becomes what is orthogonalised
    put_momentum,      // unit, part, slot: back to the host
    send_momentum,     // round, slot: to the owners of its matrices
    orthogonalize,     // round, slot: awaits that, has the owners do their work and sends the directions back
    await_directions,  // round, slot: awaits that; they are where the gradients were
    fetch_state,       // unit, part, slot: master weights and optimizer state, host -> slot
    await_state,       // slot: its copies, those that come and those that go
    update,            // unit, part, slot, or none: where its state lies
    put_state,         // unit, part, slot: back to the host, with the working copy where that is there
  };
  static constexpr int32_t none = -1;  // of the numbers below

  Op op;
  bool add = false;  // scatter, collect: the unit has been scattered before in this step; head, backward: products add
                     // to what gradients hold, and otherwise write them
  bool all = false;  // zero
  bool apart = false;  // backward_input, backward_weight: what products do not write goes to the unit's gradient in the
                       // second half, with the rest, since the gradient is scattered with each microbatch
  Channel channel = Channel::forward;  // receive, send
  int32_t microbatch = none;
  int32_t layer = none;  // of the model
  int32_t unit = none, slot = none;
  int32_t round = none;  // of rounds_of()
  int32_t x = none, y = none, saved = none, inputs = none, held = none, batch = none, host = none;
  Interval part{};  // elements of the unit's shard

  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

// An index or a count as instructions have it.
template <class N>
int32_t as_number(N n) {
  return static_cast<int32_t>(n);
}

// One training step: the schedule of the plan.
Program training_program(const Plan& plan);
// Forward only, of so many microbatches, with the losses.
Program evaluation_program(const Plan& plan, int64_t microbatches);
// Microbatch 0 up to its logits, which the last stage makes.
Program logits_program(const Plan& plan);

// The memory that a program uses; for several programs, the largest of each.
struct Needs {
  struct SlotNeed {
    int64_t numel = 0;
    bool partial = false;  // a scattered sum in f32 waits beside the unit's gradient to be added
  };
  int64_t residuals = 0, host = 0, saved = 0, inputs = 0, batches = 0;
  int64_t apart = 0;  // elements in f32 of gradients that are held apart, beside all that is saved
  std::vector<SlotNeed> weights, gradients;
  int64_t staging = 0, staging_numel = 0;  // buffers for optimizer state, and the elements of each
  int64_t rounds_at_once = 0;              // slots of exchanges
};
Needs needs_of(const Plan& plan, std::initializer_list<const Program*> programs);

}  // namespace megalith
