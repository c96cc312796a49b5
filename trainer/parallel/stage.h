// A Stage executes a program, instruction by instruction: it calls the model's math, exchanges messages with the
// neighbouring stages and makes the sharding move weights and gradients. It owns the memory that the program names,
// except the optimizer's, whose owner executes the update's instructions. It makes no decisions.
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

// The source of a batch. It runs on the host, in the host's memory.
struct Feed {
  // Writes sequences [begin, end) of the current batch to the first rows of tokens and targets (B*T, i32), and masks
  // the rest (token 0, target -1).
  using Fill = std::function<void(Interval sequences, Tensor tokens, Tensor targets)>;
  // Returns where documents begin within a sequence of the batch, except at its first position, if the data has more
  // information than its tokens.
  using Begins = std::function<std::vector<int64_t>(int64_t sequence)>;

  // Returns how many targets of these sequences count, whichever rank computes them: the same on all ranks.
  using Counted = std::function<int64_t(Interval sequences)>;

  Feed() = default;
  template <std::invocable<Interval, Tensor, Tensor> F>
  Feed(F by, Begins known = {}, Counted counts = {})
      : fill(std::move(by)), begins(std::move(known)), counted(std::move(counts)) {}

  Fill fill;
  Begins begins;    // empty: documents begin only after the token that ends one
  Counted counted;  // empty: all targets count
};

// Sees the tensors of a training step as they are computed, under names that every layout uses: "embedding" (the input
// of the first block), "h.3" (the output of block 3), "loss" (by row) in forward; "d h.3" and "d embedding" (their
// gradients) in backward. Rows count from the first of the batch; those of masked sequences are left out. It also sees
// evaluations, with the row's "largest logit" and "target's logit" in addition to its "loss". Weights and their
// gradients are not shown: they can be read after the step.
using Observer = std::function<void(const std::string& name, int64_t first_row, Tensor rows)>;

// Called with each instruction of a program before it is executed, and with null after the last.
using Follower = std::function<void(const Instruction* i)>;

// Executes the instructions of the update (update.h).
using Updater = std::function<void(const Instruction& i)>;

// What changes from batch to batch.
struct BatchContext {
  Feed feed;
  BatchPlan batch;
  Dropout dropout;  // p, seed and step; the stage sets the first row and the site
  double adapter_dropout = 0;
  int64_t first_row = 0;  // global row of the batch's first token
  Tensor loss_scale{};    // (1) f64: multiplies gradients, in addition to the loss's own scale; empty: 1
};

class Stage {
 public:
  Stage(const Plan& plan, Runtime& runtime, bool training);

  Sharding& sharding() { return sharding_; }
  const Needs& needs() const { return needs_; }

  // Runs a training step: forward and backward of every microbatch, in the order of plan.schedule, and the update.
  void train(BatchContext batch);
  // Sets the updater, which train() requires. It must outlive the stage.
  void update_by(Updater updater) { updater_ = std::move(updater); }

  // Runs only the forward pass, without gradients.
  void evaluate(BatchContext batch);

  // Sets the observer, which must outlive the stage. The default is no observer.
  void observe(Observer observer) { observer_ = std::move(observer); }

  // Sets the follower, which must outlive the stage. It can identify the instruction of an op that a Stream's OpWatcher
  // sees.
  // sees.
  void follow(Follower follower) { follower_ = std::move(follower); }

  // (1) f64: this rank's share of the mean loss over the batch; 0 on stages without the head. With plan.masked it is
  // the sum of the losses, for the caller to divide by counted().
  Tensor loss() const { return loss_; }
  // (microbatches) f64: the same for each microbatch of the last training step; empty on stages without the head.
  Tensor losses() const { return losses_; }
  // Returns how many targets of the last batch count, over all ranks. The host knows it when the batch begins.
  int64_t counted() const { return counted_; }

 private:
  struct Residual {
    Tensor tensor;
    Pending transfer;  // receives or sends the residual
  };
  // The tensors that a layer keeps of its forward pass. If the backward pass has two halves, the same memory then holds
  // what the second half needs from the first, and the gradients that are kept apart, (elements) f32.
  struct LayerMemory {
    BlockSaved saved;
    BlockGradients gradients;
    Tensor apart;
  };
  struct Batch {
    Tensor tokens, targets;  // (N) i32
    Tensor losses;           // (N) f32, on the stage with the head
    Tensor starts;           // (B, T) i32, if documents are isolated
    Tensor drawn;            // (1 + sites, 2) i32, if dropout draws from memory (dropout.h)
  };
  // The tensors that a layer recomputed, in scratch memory until its backward pass ends.
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
  Dropout dropout(const Instruction& i) const;  // mask of its microbatch's rows
  double share_of_token() const;                // its weight in loss()
  void show(const std::string& name, const Instruction& i, Tensor rows, int64_t first_row_here) const;

  const Plan& plan_;
  Runtime& runtime_;
  const Model model_;
  const Program training_;    // empty without training
  const ProgramParts parts_;  // of training_; empty without graphs
  const Needs needs_;
  Sharding sharding_;
  std::unique_ptr<Edge> edge_;
  std::vector<Residual> residuals_;
  std::vector<Tensor> host_;
  std::vector<LayerMemory> saved_;
  std::vector<BlockSaved> inputs_;
  std::vector<Batch> batches_;
  std::deque<Recomputed> recomputed_;  // the first is used next
  Tensor loss_, losses_;
  Tensor share_;  // (1) f64, with plan.masked: 1 / counted(), which multiplies a step's gradients
  int64_t counted_ = 0;
  std::vector<LaunchGraph> graphs_;

  BatchContext batch_;
  Observer observer_;
  Follower follower_;
  Updater updater_;
};

}  // namespace megalith
