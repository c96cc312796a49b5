// A Stage obeys actions: it leases weights, calls the model's math in order, keeps what backward needs, exchanges
// activations and their gradients with the neighbouring stages, and lets gradients be reduced. It owns the slots of
// saved activations, one for each microbatch alive in each chunk, and nothing of the optimizer or of files.
//
// Communication runs under compute: while one action runs, the message of the next is being received and the weights of
// the next unit are being gathered; what was sent is waited for when its memory is needed again.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/embedding.h"
#include "trainer/model/head.h"
#include "trainer/parallel/edges.h"
#include "trainer/parallel/sharding.h"

namespace megalith {

// Writes sequences [begin, end) of the current batch to the first rows of tokens and targets (B*T, i32), and masks the
// rest (token 0, target -1). Runs on the host, in its memory.
using Feed = std::function<void(Interval sequences, Tensor tokens, Tensor targets)>;

// Sees the tensors of a training step as they are computed, under names that every layout uses: "embedding" (the input
// of the first block), "h.3" (the output of block 3), "loss" (by row) going forward, "d h.3" and "d embedding" (the
// gradients of those) coming back. Rows count from the first of the batch; those of masked sequences are left out.
// Weights' gradients and weights are not shown: they can be read when the step is over.
using Observer = std::function<void(const std::string& name, int64_t first_row, Tensor rows)>;

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

  // A training step: forward and backward of every microbatch, in the order of plan.schedule. Gradients are then
  // finished.
  void train(BatchContext batch);

  // Forward only, without the gradients.
  void evaluate(BatchContext batch);

  // Forward of microbatch 0 up to the input of the final norm; needs all of the model on this rank.
  void run_layers(BatchContext batch);
  // logits (1, columns) of row `row` of the microbatch that ran last.
  void logits(int64_t row, Tensor logits);

  // None by default. It must outlive the stage.
  void observe(Observer observer) { observer_ = std::move(observer); }

  // (1) f64: this rank's part of the mean loss over the batch; 0 where the head is not.
  Tensor loss() const { return loss_; }

 private:
  enum class Mode { train, evaluate, layers };

  // Memory that a message comes from or goes to, and the message on its way.
  struct Buffer {
    Tensor tensor;
    Pending message;
  };
  struct Slot {
    Tensor tokens, targets;         // (N) i32, at the ends of the model
    Tensor losses;                  // (N) f32, below the head
    std::vector<Tensor> x;          // inputs of the blocks but the first, (R, C)
    std::vector<BlockSaved> saved;  // by block; empty when recomputing
  };
  // A chunk's memory. Microbatch k uses element k modulo their number of each.
  struct Part {
    const Chunk* chunk;
    std::vector<Block> blocks;
    std::vector<Slot> slots;
    std::vector<Buffer> inputs, outputs, gradients;  // of the first block, of the last, of either on the way back
  };

  template <class T>
  static T& of(std::vector<T>& all, int64_t microbatch) {
    return all[static_cast<size_t>(microbatch) % all.size()];
  }

  Part make_part(const Chunk& chunk, bool training);
  void begin(BatchContext batch, Mode mode);
  void run(std::span<const Action> actions);
  void forward(Part& part, int64_t microbatch);
  void head(Part& part, int64_t microbatch);
  void backward(Part& part, int64_t microbatch);

  void begin_receive(const Action& action);
  void send(Channel channel, Buffer& buffer);
  // Where the message comes from that the action needs, or null.
  Buffer* incoming(const Action& action);

  // Leases are known beforehand: the next one's weights are always on their way.
  std::vector<size_t> leases_of(const Action& action) const;
  Sharding::Lease lease(size_t unit);

  Context context(int64_t microbatch);
  double loss_scale() const;
  void show(const std::string& name, int64_t microbatch, Tensor rows, int64_t first_row_here) const;
  bool is_last(int64_t microbatch) const { return microbatch + 1 == batch_.batch.num_microbatches(); }

  const Plan& plan_;
  Runtime& runtime_;
  Sharding sharding_;
  std::unique_ptr<Edge> edge_;
  Embedding embedding_;
  Head head_;
  std::vector<Part> parts_;
  Tensor loss_;

  BatchContext batch_;
  Mode mode_ = Mode::train;
  Observer observer_;
  std::vector<size_t> leases_;
  size_t next_lease_ = 0;
};

}  // namespace megalith
