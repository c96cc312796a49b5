// The Trainer is the step: batches in, one update of the weights out. It drives a Stage through the plan's schedule,
// clips, and lets the optimizer update. It never reads device values inside a step: what a step reports is copied to
// StepScalars, to be read once the stream has passed the copy.
#pragma once

#include "configs/config.h"
#include "trainer/parallel/stage.h"
#include "trainer/step/optimizer.h"

namespace megalith {

// What a step reports to the host, the same on every rank.
struct StepScalars {
  double loss = 0;        // mean over the tokens of the global batch, before the update
  double grad_norm = 0;   // of the global gradient, before clipping
  double stop_votes = 0;  // ranks that asked for the run to end
};

class Trainer {
 public:
  // `config`, `plan` and `runtime` must outlive it. Weights are undefined until initialize() or a checkpoint.
  Trainer(const Config& config, const Plan& plan, Runtime& runtime);

  // Weights from train.seed, optimizer state as before the first update.
  void initialize();
  // Weights and state from elsewhere: all 0, then whoever has them writes them, then what follows from them.
  void clear();
  void weights_loaded();

  // Update number step + 1, on sequences [first_sequence, first_sequence + global batch) counted since the run began;
  // `feed` gets positions within that batch. `out` is written when the stream receives what is returned.
  Stream::Ticket step(int64_t step, int64_t first_sequence, Feed feed, bool vote_to_stop, StepScalars* out);

  // Mean loss over `sequences` sequences, forward only, without dropout; the same on every rank. Waits for the result.
  double evaluate(int64_t sequences, Feed feed);

  Stream& stream() { return runtime_.stream; }
  Stage& stage() { return stage_; }
  Optimizer& optimizer() { return optimizer_; }
  const Plan& plan() const { return plan_; }

 private:
  // What this rank adds to the sum of losses over all ranks: tensor-parallel ranks all hold the same.
  void share_of_loss(Tensor share);

  const Config& config_;
  const Plan& plan_;
  Runtime& runtime_;
  Stage stage_;
  Optimizer optimizer_;
  // (1) f64 each, on the device. The first three lie in one tensor so that they travel together.
  Tensor scalars_;  // square sum of the gradient, loss, stop votes
  Tensor scale_;    // the clip factor
};

}  // namespace megalith
