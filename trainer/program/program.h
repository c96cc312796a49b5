// A Program is the work of one rank in a step: a list of instructions that a Stage executes one by one. The list is a
// pure function of the plan. It holds all decisions on what is gathered, kept, sent or added up, when, and where in
// memory.
//
// Instructions name memory by number:
//   residuals   tensors (R, C) of the compute type: inputs and outputs of layers, their gradients, messages
//   host        residuals in memory of the host
//   saved       tensors that a layer keeps of its forward pass for its backward pass (BlockSaved, or its products). If
//               the backward pass has two halves, the first leaves what the second needs in other such memory
//               (BlockGradients)
//   inputs      with two halves: the inputs of products, from the forward pass or their recomputation up to the weight
//               half (BlockSaved::take_inputs)
//   batches     tokens and targets of a microbatch; if documents are isolated, also their beginnings; if dropout draws
//               from memory, its numbers, and then layers name a batch as well
//   weight and gradient slots   of sharding.h
//   staging     buffers for the optimizer state of units whose state is on the host
// needs_of() counts them in the list.
//
// Laws of every list (tests/pure/program_test.cpp runs the lists of all ranks against each other, without tensors):
// - Weights are gathered before they are used, and layers that share slots are gathered into at most plan.live_units.
// - A residual is not written while it is in transfer or still to be read; saved tensors are used once.
// - Each microbatch counts once in the gradient of each unit, which is scattered and summed when it is complete.
// - Each element is updated once, from a finished gradient, after the decision, and where its state is.
// - Messages are received in the order in which they are sent, in each direction, and all are received.
// - All ranks of a shard, data or tensor group make the same calls to it in the same order.
#pragma once

#include "trainer/layout/plan.h"

namespace megalith {

struct Instruction {
  enum class Op : uint8_t {
    // Weights, over the shard axis; await orders what follows after the gather.
    cast,          // all units: their weights of products in 8 bits, from which `gather` with fp8 gathers
    gather,        // unit, slot, fp8
    await_gather,  // unit, slot
    // Gradients; unit may be Plan::head_share(). Slot none: the unit is not sharded, and they are in its own memory.
    zero,     // unit, slot, all: makes the slot the unit's and sets it to 0, or without `all` only the elements that no
              // product writes first
    scatter,  // unit, slot, add: starts the reduce-scatter of the slot into the unit's gradient, or with `add` into a
              // buffer that collect adds; meanwhile another slot may be zeroed for the unit
    relay,    // unit, slot: if gradients in bf16 are summed in each node first: awaits these sums and sends them on
    collect,  // unit, slot, add: awaits the scatter
    sum_copies,  // unit: over the data axis
    share_sums,  // unit, of gradients in bf16: awaits the parts that sum_copies has sent, adds them up and sends the
                 // sums
    sum_tensor,  // unit: sums gradients of which several tensor ranks (all, or those of a key-value head) have a share
    await_sums,  // all sums that were begun
    sum_tied,    // the embedding: adds the shares of the two ends of the pipeline
    // Messages between stages, of residual y, and its copies to the host and back. A residual has at most one in
    // flight.
    receive,
    send,
    offload,         // y -> host
    fetch,           // host -> y
    await_transfer,  // y
    // Math of one microbatch. The weights are those of the unit; for embedding and head, those of the plan.
    load,             // batch
    embed,            // batch -> y
    forward,          // x -> y; saved, or none: keeps nothing
    recompute,        // x, saved: computes the missing tensors in scratch memory, for the next backward pass (last
                      // recomputed, first used); saved none: all of forward, with y if the next layer recomputes too
    head,             // x, batch -> losses and gradient y
    head_loss,        // x, batch -> losses
    head_logits,      // x -> logits
    keep_loss,        // batch: stores the sum of its losses separately
    count_loss,       // batch: adds its losses to the sum of the step
    backward,         // x, saved (or none: the last recomputed); gradient y in place
    backward_input,   // backward without the weight gradients of products; what backward_weight needs goes to `held`
                      // (none: frozen layer). apart: all other gradients go there too
    backward_weight,  // inputs, held: the weight gradients of products, of the same microbatch
    embed_backward,   // batch; gradient y is used up
    // The update, from the finished gradients (update.h). Slots are staging buffers for optimizer state.
    norm,       // unit: this rank's share of the square sum of its gradient
    sum_norms,  // over all ranks, with the loss
    decide,     // updates the weights or not; sets the scale of gradients
    // These take units that Muon updates (matrices.h). Slots of exchanges are those of the rounds in progress.
    fetch_momentum,    // unit, part, slot: host -> slot
    momentum,          // unit, slot (or none), part: from the gradient, which becomes the matrix to orthogonalise
    put_momentum,      // unit, part, slot: back to the host
    send_momentum,     // round, slot: to the owners of its matrices
    orthogonalize,     // round, slot: awaits that; the owners do their work and send the directions back
    await_directions,  // round, slot: awaits that; they replace the gradients
    fetch_state,       // unit, part, slot: master weights and optimizer state, host -> slot
    await_state,       // slot: awaits its copies, in both directions
    update,            // unit, part, slot, or none: where its state is
    put_state,         // unit, part, slot: back to the host, with the working copy if that is there
  };
  static constexpr int32_t none = -1;  // unset number

  Op op;
  bool add = false;  // scatter, collect: the unit has been scattered before in this step; head, backward: products add
                     // to gradients, and otherwise write them
  bool all = false;  // zero
  bool fp8 = false;  // gather: in 8 bits, where the plan has them (UnitPlan::fp8)
  // backward_input, backward_weight: gradients that products do not write go to the unit's gradient in the second
  // half, together with the rest, since the gradient is scattered with each microbatch.
  bool apart = false;
  Channel channel = Channel::forward;  // receive, send
  int32_t microbatch = none;
  int32_t layer = none;  // number in the model
  int32_t unit = none, slot = none;
  int32_t round = none;  // number in rounds_of()
  int32_t x = none, y = none, saved = none, inputs = none, held = none, batch = none, host = none;
  Interval part{};  // elements of the unit's shard

  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

// Converts an index or a count to the type of instructions.
template <class N>
int32_t as_number(N n) {
  return static_cast<int32_t>(n);
}

// One training step: the schedule of the plan.
Program training_program(const Plan& plan);
// Forward only, of this many microbatches, with the losses.
Program evaluation_program(const Plan& plan, int64_t microbatches);
// Microbatch 0 up to its logits, which the last stage computes.
Program logits_program(const Plan& plan);

// The memory of a program; for several programs, the largest of each.
struct Needs {
  struct SlotNeed {
    int64_t numel = 0;
    bool partial = false;  // a scattered sum in f32 waits in its own memory before it is added to the unit's gradient
  };
  int64_t residuals = 0, host = 0, saved = 0, inputs = 0, batches = 0;
  int64_t apart = 0;  // elements in f32 of gradients that are kept apart, in addition to the saved tensors
  std::vector<SlotNeed> weights, gradients;
  int64_t staging = 0, staging_numel = 0;  // buffers for optimizer state, and the elements of each
  int64_t rounds_at_once = 0;              // slots of exchanges
};
Needs needs_of(const Plan& plan, std::initializer_list<const Program*> programs);

}  // namespace megalith
