// The Trainer makes the step: batches in, one update of the weights out, or none if a loss or gradient is not usable. A
// Stage executes the program of the step. For its update the Trainer sums over the ranks the numbers on which the
// optimizer decides, and the optimizer does the rest. It never reads device values inside a step: results are copied to
// StepScalars, which is valid once the stream has passed the copy.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "configs/config.h"
#include "trainer/parallel/decoder.h"
#include "trainer/parallel/stage.h"
#include "trainer/step/directions.h"
#include "trainer/step/optimizer.h"
#include "trainer/step/rank_stats.h"
#include "trainer/step/saved_state.h"

namespace megalith {

// What a step reports to the host.
struct StepScalars {
  // These are the same on every rank.
  double loss = 0;       // mean over the counted tokens of the global batch, before the update; NaN if none counts
  int64_t counted = 0;   // number of these tokens
  double grad_norm = 0;  // norm of the global gradient, before clipping
  Decision decision = Decision::update;
  double median = 0;      // of the previous norms, if train.skip_norm_above is set and there are enough of them
  double loss_scale = 0;  // fp16: this step's and the next one's
  double next_loss_scale = 0;
  // The last unit of the model whose gradient is not finite: from there backward passes it on to earlier ones.
  std::optional<size_t> bad_unit{};
  RankRecords ranks{};
  // These are of this rank only: its microbatches whose loss is not finite, and the model's units whose gradient is not
  // finite in the part that it holds.
  std::vector<int64_t> bad_microbatches{};
  std::vector<size_t> bad_units{};
  bool skipped() const { return decision != Decision::update; }
};

class Trainer {
 public:
  // `config`, `plan` and `runtime` must outlive it. Weights are undefined until initialize() or a checkpoint.
  Trainer(const Config& config, const Plan& plan, Runtime& runtime);
  Trainer(const Trainer&) = delete;

  // Sets the weights from train.seed, and the optimizer state before the first update.
  void initialize();
  // As above for the trained parameters, between clear() and weights_loaded().
  void initialize_trained();
  // For weights and state from another source: clear() sets all to 0, the caller writes them, weights_loaded() derives
  // the rest.
  void clear();
  void weights_loaded();

  // Runs step number step + 1, on sequences [first_sequence, first_sequence + global batch) counted since the run
  // began; `feed` gets positions within that batch. `record`, unless it is empty, provides this rank's numbers for the
  // others when the host launches the last sum. `out` is written when the stream receives the returned ticket.
  Stream::Ticket step(int64_t step, int64_t first_sequence, Feed feed, const RankStats::Source& record,
                      StepScalars* out);

  // Returns the tensors that this rank saves, with the values after the last step.
  const std::vector<SavedTensor>& saved_tensors() const { return saved_; }
  // Returns a copy of them, if saves_asynchronously(), with the present values although steps continue. On a GPU the
  // host can read it once it has received a step that was launched later, or after await_copy(). One at a time.
  const std::vector<SavedTensor>& copy_state();
  void await_copy();

  // Returns a decoder that continues texts with the weights after the last step (sample_room.h); null without
  // train.sample_every. It shares no memory with a training step, so the training's bits do not depend on it.
  Decoder* decoder() { return decoder_ ? &*decoder_ : nullptr; }

  // Returns the mean loss over the counted tokens of `sequences` sequences, 0 if none counts; forward only, without
  // dropout; the same on every rank. Waits for the result.
  double evaluate(int64_t sequences, Feed feed);

  Stream& stream() { return runtime_.stream; }
  Stage& stage() { return stage_; }
  Optimizer& optimizer() { return optimizer_; }
  Directions& directions() { return directions_; }
  const Plan& plan() const { return plan_; }

 private:
  // Executes an instruction of the update.
  void obey(const Instruction& i);
  // Adds this rank's share to the sums over all ranks: the square sum of its part of a unit's gradient; its loss, where
  // tensor-parallel ranks all hold the same.
  void add_squares(size_t unit);
  void share_of_loss(Tensor share);
  // Returns the mean loss of the stage's current batch from the sum over all ranks of their shares.
  double mean_loss(double sum, int64_t counted) const;
  // Also begins the sum of the ranks' statistics.
  void sum_norms();
  // Copies the step's scalars, except the ranks' statistics, to `out` when the stream receives them.
  void read(StepScalars* out);

  const Config& config_;
  const Plan& plan_;
  Runtime& runtime_;
  Stage stage_;
  Optimizer optimizer_;
  Directions directions_;            // directions of Muon's matrices
  int64_t num_units_;                // the whole model's
  std::vector<int64_t> unit_index_;  // index in the model of each unit of the plan
  std::vector<SavedTensor> saved_;
  std::optional<StateCopy> copy_;
  std::optional<Decoder> decoder_;
  // (units + 1) f64: the square sum of each unit's gradient, and the loss; of this rank, and summed over all. They are
  // in one tensor, so that the host reads both at once.
  Tensor scalars_, mine_, sums_;
  RankStats rank_stats_;
  // Of the step in progress.
  int64_t step_ = 0;
  const RankStats::Source* record_ = nullptr;
  Pending stats_;
};

}  // namespace megalith
