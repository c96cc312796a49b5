// A Stage obeys actions: it leases weights, calls the model's math in order, keeps what backward needs, and lets
// gradients be reduced. It owns the slots of saved activations, one for each microbatch alive, and nothing of the
// optimizer or of files.
#pragma once

#include <functional>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/embedding.h"
#include "trainer/model/head.h"
#include "trainer/parallel/edges.h"
#include "trainer/parallel/sharding.h"

namespace megalith {

// Writes sequences [begin, end) of the current batch to the first rows of tokens and targets (B*T, i32), and masks the
// rest (token 0, target -1). Runs on the host, inside a launch.
using Feed = std::function<void(Interval sequences, Tensor tokens, Tensor targets)>;

// What changes from batch to batch.
struct BatchContext {
  Feed feed;
  BatchPlan batch;
  Dropout dropout;        // p, seed and step; the first row and the site are set here
  int64_t first_row = 0;  // global row of the batch's first token
};

class Stage {
 public:
  Stage(const Plan& plan, Runtime& runtime, bool training);

  Sharding& sharding() { return sharding_; }

  // A training step: begin, actions in the order of plan.schedule, finish_gradients.
  void begin(BatchContext batch);
  void forward(int64_t microbatch);
  void backward(int64_t microbatch);
  void finish_gradients() { sharding_.finish_gradients(); }

  // Forward only; evaluate adds to loss() as forward does, run_layers stops below the head. begin_evaluation comes
  // first.
  void begin_evaluation(BatchContext batch);
  void evaluate(int64_t microbatch);
  void run_layers(int64_t microbatch) { run_blocks(microbatch, false); }

  // (1) f64: this rank's part of the mean loss over the batch, since begin.
  Tensor loss() const { return loss_; }

  // logits (1, V) of row `row` of the microbatch that ran last.
  void logits(int64_t row, Tensor logits);

 private:
  struct Slot {
    Tensor tokens, targets;         // (N) i32
    Tensor losses;                  // (N) f32
    std::vector<Tensor> x;          // input of each block, then of the final norm: (N, C)
    Tensor dx;                      // (N, C) gradient of the last x, after forward
    std::vector<BlockSaved> saved;  // by block; empty when recomputing
  };
  Slot& slot(int64_t microbatch) { return slots_[static_cast<size_t>(microbatch) % slots_.size()]; }
  Context context(int64_t microbatch);
  double loss_scale() const;
  // Tokens to the input of the final norm.
  void run_blocks(int64_t microbatch, bool save);

  const Plan& plan_;
  Runtime& runtime_;
  Sharding sharding_;
  WholeEdge edge_;
  std::vector<Block> blocks_;
  Head head_;
  std::vector<Slot> slots_;
  Tensor loss_;
  BatchContext batch_;
};

}  // namespace megalith
