// The Trainer is the step: batches in, one update of the weights out, or none where a loss or gradient is not fit for
// one. A Stage obeys the program of the step; of its update the Trainer sums over the ranks what the optimizer decides
// by, and the optimizer does the rest. It never reads device values inside a step: what a step reports is copied to
// StepScalars, to be read once the stream has passed the copy.
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

// StepScalars are what a step reports to the host.
struct StepScalars {
  // The same on every rank.
  double loss = 0;       // mean over the tokens of the global batch that count, before the update; NaN if none does
  int64_t counted = 0;   // such tokens
  double grad_norm = 0;  // of the global gradient, before clipping
  Decision decision = Decision::update;
  double median = 0;      // of the norms before, where train.skip_norm_above is set and there are enough of them
  double loss_scale = 0;  // in fp16, of this step and of the next
  double next_loss_scale = 0;
  // The last of the model whose gradient is not finite: from there backward carries it to those before.
  std::optional<size_t> bad_unit{};
  RankRecords ranks{};
  // These only this rank knows: its microbatches whose loss is not finite, and the model's units whose gradient is not
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

  // Weights from train.seed, optimizer state as before the first update.
  void initialize();
  // The same for what is trained, between clear() and weights_loaded().
  void initialize_trained();
  // Weights and state from elsewhere: all 0, then whoever has them writes them, then what follows from them.
  void clear();
  void weights_loaded();

  // Step number step + 1, on sequences [first_sequence, first_sequence + global batch) counted since the run began;
  // `feed` gets positions within that batch. `record`, unless it is empty, is asked for what this rank tells the others
  // when the host launches the last sum. `out` is written when the stream receives what is returned.
  Stream::Ticket step(int64_t step, int64_t first_sequence, Feed feed, const RankStats::Source& record,
                      StepScalars* out);

  // Returns what this rank saves, as the last step left it.
  const std::vector<SavedTensor>& saved_tensors() const { return saved_; }
  // The same in a copy, where saves_asynchronously(): what it is now, though steps go on. On a GPU the host can read it
  // once it has received a step that was launched since, or after await_copy(). One at a time.
  const std::vector<SavedTensor>& copy_state();
  void await_copy();

  // Continues texts with the weights as the last step left them (sample_room.h); null without train.sample_every.
  // Nothing of a training step is in its memory, so that no bit of the training depends on it.
  Decoder* decoder() { return decoder_ ? &*decoder_ : nullptr; }

  // Mean loss over the tokens of `sequences` sequences that count, 0 if none does, forward only, without dropout; the
  // same on every rank. Waits for the result.
  double evaluate(int64_t sequences, Feed feed);

  Stream& stream() { return runtime_.stream; }
  Stage& stage() { return stage_; }
  Optimizer& optimizer() { return optimizer_; }
  Directions& directions() { return directions_; }
  const Plan& plan() const { return plan_; }

 private:
  // Obeys an instruction of the update.
  void obey(const Instruction& i);
  // Adds this rank's share to the sums over all ranks: the square sum of its part of a unit's gradient; its loss, where
  // tensor-parallel ranks all hold the same.
  void add_squares(size_t unit);
  void share_of_loss(Tensor share);
  // Returns the mean loss of the batch that the stage has begun, from the sum over all ranks of their shares.
  double mean_loss(double sum, int64_t counted) const;
  // Begins the sum of what ranks tell one another as well.
  void sum_norms();
  // Copies the step's scalars, but for those of ranks, to `out` when the stream receives them.
  void read(StepScalars* out);

  const Config& config_;
  const Plan& plan_;
  Runtime& runtime_;
  Stage stage_;
  Optimizer optimizer_;
  Directions directions_;            // of Muon's matrices
  int64_t num_units_;                // of the whole model
  std::vector<int64_t> unit_index_;  // in the model, of each unit of the plan
  std::vector<SavedTensor> saved_;
  std::optional<StateCopy> copy_;
  std::optional<Decoder> decoder_;
  // (units + 1) f64: the square sum of each unit's gradient, and the loss; of this rank, and summed over all. They lie
  // in one tensor, so that the host reads both at once.
  Tensor scalars_, mine_, sums_;
  RankStats rank_stats_;
  // These are of the step that is under way.
  int64_t step_ = 0;
  const RankStats::Source* record_ = nullptr;
  Pending stats_;
};

}  // namespace megalith
