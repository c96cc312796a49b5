// A Stage obeys a program, instruction by instruction: it calls the model's math, exchanges messages with the
// neighbouring stages and has the sharding move weights and gradients. It owns the memory that the program names, but
// for the optimizer's, whose owner obeys the update's instructions; it decides nothing.
#pragma once

#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/parallel/edges.h"
#include "trainer/parallel/graphs.h"
#include "trainer/parallel/sharding.h"
#include "trainer/program/program.h"

namespace megalith {

// A Feed is where a batch comes from. It runs on the host, in the host's memory.
struct Feed {
  // Writes sequences [begin, end) of the current batch to the first rows of tokens and targets (B*T, i32), and masks
  // the rest (token 0, target -1).
  using Fill = std::function<void(Interval sequences, Tensor tokens, Tensor targets)>;
  // Returns where documents begin within a sequence of the batch, its first position apart, if the data says so beside
  // its tokens.
  using Begins = std::function<std::vector<int64_t>(int64_t sequence)>;

  // Returns how many targets of these sequences count, whichever rank computes them: the same on all ranks.
  using Counted = std::function<int64_t(Interval sequences)>;

  Feed() = default;
  template <std::invocable<Interval, Tensor, Tensor> F>
  Feed(F by, Begins known = {}, Counted counts = {})
      : fill(std::move(by)), begins(std::move(known)), counted(std::move(counts)) {}

  Fill fill;
  Begins begins;    // empty: by the token that ends a document alone
  Counted counted;  // empty: all do
};

// Sees the tensors of a training step as they are computed, under names that every layout uses: "embedding" (the input
// of the first block), "h.3" (the output of block 3), "loss" (by row) going forward, "d h.3" and "d embedding" (the
// gradients of those) coming back. Rows count from the first of the batch; those of masked sequences are left out.
// An evaluation is shown as well, with the row's "largest logit" and "target's logit" beside its "loss".
// Weights' gradients and weights are not shown: they can be read when the step is over.
using Observer = std::function<void(const std::string& name, int64_t first_row, Tensor rows)>;

// Is told of each instruction of a program before it is obeyed, and of none (null) when all have been.
using Follower = std::function<void(const Instruction* i)>;

// Obeys the instructions of the update (update.h).
using Updater = std::function<void(const Instruction& i)>;

// BatchContext holds what changes from batch to batch.
struct BatchContext {
  Feed feed;
  BatchPlan batch;
  Dropout dropout;  // p, seed and step; the first row and the site are set here
  double adapter_dropout = 0;
  int64_t first_row = 0;  // global row of the batch's first token
  Tensor loss_scale{};    // (1) f64: what gradients are multiplied by, beside the loss's own; empty: nothing
};

class Stage {
 public:
  Stage(const Plan& plan, Runtime& runtime, bool training);

  Sharding& sharding() { return sharding_; }
  const Needs& needs() const { return needs_; }

  // A training step: forward and backward of every microbatch, in the order of plan.schedule, and the update.
  void train(BatchContext batch);
  // No step can be trained without one. It must outlive the stage.
  void update_by(Updater updater) { updater_ = std::move(updater); }

  // Forward only, without the gradients.
  void evaluate(BatchContext batch);

  // None by default. It must outlive the stage.
  void observe(Observer observer) { observer_ = std::move(observer); }

  // None by default. Who says what it is that a Stream's OpWatcher is told of.
  void follow(Follower follower) { follower_ = std::move(follower); }

  // (1) f64: this rank's share of the mean loss over the batch; 0 where the head is not. With plan.masked it is the sum
  // of the losses, for the caller to divide by counted().
  Tensor loss() const { return loss_; }
  // (microbatches) f64: the same of the microbatches of the last training step; empty where the head is not.
  Tensor losses() const { return losses_; }
  // Returns how many targets of the last batch count, over all ranks; the host knows it when the batch begins.
  int64_t counted() const { return counted_; }

 private:
  struct Residual {
    Tensor tensor;
    Pending transfer;  // from it or to it
  };
  // LayerMemory holds what a layer keeps of its forward pass; in the same memory, where the backward pass has two
  // halves, what the second needs of the first, with the gradients that are held apart, (elements) f32.
  struct LayerMemory {
    BlockSaved saved;
    BlockGradients gradients;
    Tensor apart;
  };
  struct Batch {
    Tensor tokens, targets;  // (N) i32
    Tensor losses;           // (N) f32, where the head is
    Tensor starts;           // (B, T) i32, where documents are kept apart
    Tensor drawn;            // (1 + sites, 2) i32, where dropout draws from memory (dropout.h)
  };
  // Recomputed holds what a layer recomputed, in scratch memory until its backward pass is over.
  struct Recomputed {
    Recomputed(Arena& scratch, const Plan& plan, const Block& block, const BlockSaved& kept)
        : scope(scratch), saved(kept) {
      block.allocate(scratch, plan.types(), plan.pass, Kept::all, saved);
    }
    Arena::Scope scope;
    BlockSaved saved;
  };

  void begin(BatchContext batch);
  void run(const Program& program, BatchContext batch);
  void obey(const Instruction& i);
  void obey(const Program& program, const ProgramPart& part);

  void receive(const Instruction& i);
  void send(const Instruction& i);
  void load(const Instruction& i);
  void embed(const Instruction& i);
  void allocate_saved();
  BlockSaved kept(const Instruction& i);
  void forward(const Instruction& i);
  void recompute(const Instruction& i);
  void head(const Instruction& i);
  void head_loss(const Instruction& i);
  void backward(const Instruction& i);
  void backward_input(const Instruction& i);
  void backward_weight(const Instruction& i);
  void embed_backward(const Instruction& i);

  Residual& residual(int32_t number) { return residuals_[static_cast<size_t>(number)]; }
  Batch& batch(const Instruction& i) { return batches_[static_cast<size_t>(i.batch)]; }
  Context context(const Instruction& i);
  Dropout dropout(const Instruction& i) const;  // of its microbatch, from the first row of that on
  double share_of_token() const;                // in loss()
  void show(const std::string& name, const Instruction& i, Tensor rows, int64_t first_row_here) const;

  const Plan& plan_;
  Runtime& runtime_;
  const Model model_;
  const Program training_;    // empty without training
  const ProgramParts parts_;  // of it; empty where launches are not to be graphs
  const Needs needs_;
  Sharding sharding_;
  std::unique_ptr<Edge> edge_;
  std::vector<Residual> residuals_;
  std::vector<Tensor> host_;
  std::vector<LayerMemory> saved_;
  std::vector<BlockSaved> inputs_;
  std::vector<Batch> batches_;
  std::deque<Recomputed> recomputed_;  // the first is the next to be used
  Tensor loss_, losses_;
  Tensor share_;  // (1) f64, with plan.masked: 1 / counted(), by which a step's gradients are multiplied
  int64_t counted_ = 0;
  std::vector<LaunchGraph> graphs_;

  BatchContext batch_;
  Observer observer_;
  Follower follower_;
  Updater updater_;
};

}  // namespace megalith
