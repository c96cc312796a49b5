// Tracks which steps of a run were stable, and so which of its checkpoints are safe to restart from.
//
// A step is an anomaly where
//   it is skipped: its loss or gradient norm is not finite, or the norm is a spike (train.skip_norm_above). An overflow
//     that lowers the loss scale is no anomaly;
//   its loss is a spike: above the median of the last 128 stable steps' losses by more than that median and by more
//     than 1 nat a token. Spikes never enter the median;
//   the validation loss after it is not finite.
// Every other step is stable.
//
// The loss of step s + 1 is the first that the weights after step s produce. So a checkpoint of step s is worth as much
// as the number of stable steps that follow it without a gap, and is *settled* when these are `checkpoint.settle`:
// until then a learning rate that ruins the weights may not have shown yet.
//
// A pure function of the recorded steps: the same on every rank and in a resumed run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trainer/checkpointing/state_reader.h"

namespace megalith {

class Stability {
 public:
  static constexpr size_t window = 128;          // losses under the median, at most
  static constexpr size_t most_anomalies = 128;  // older ones are forgotten

  // Records the next step, counted from 1.
  void record(int64_t step, bool skipped, double loss);
  // Returns whether a training loss is finite and no spike.
  bool is_normal(double loss) const;
  // Records that the validation loss after the last step is not finite.
  void anomaly_in_validation() { anomaly(last_step_); }
  // Forgets the past losses, with which those under other data or rates cannot be compared.
  void forget_losses() { losses_.clear(); }

  int64_t last_step() const { return last_step_; }
  // Returns how many stable steps follow step s without a gap.
  int64_t stable_after(int64_t s) const;
  bool settled(int64_t s, int64_t settle) const { return stable_after(s) >= settle; }
  // Returns the first step of the anomaly that the last step belongs to, or nothing if that was stable.
  std::optional<int64_t> anomaly_since() const;

  // Converts to the "losses" and "troubles", as [first, last] steps, of a checkpoint's state, and back. Steps that an
  // older checkpoint says nothing of were stable.
  nlohmann::json to_json() const;
  static Stability from(const StateReader& state, int64_t step);

 private:
  void anomaly(int64_t step);

  int64_t last_step_ = 0;
  std::vector<double> losses_;                          // the last stable steps', the oldest first
  std::vector<std::pair<int64_t, int64_t>> anomalies_;  // first and last steps
};

// Returns which of the checkpoints of these steps must not be pruned: for a restart, the newest settled one (or the
// oldest, where none is) and the oldest that may still settle and replace it; and for good, where keep_every > 0, the
// first at or after each multiple of it but 0.
std::set<int64_t> needed_checkpoints(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                     int64_t keep_every = 0);

// Describes the weights of a run that an anomaly ended: step `since` updated them last, and `stable` says whether their
// loss on data of an earlier step is normal.
struct LastWeights {
  int64_t since = 0;
  bool stable = false;
};

// Returns the checkpoint that such a run restarts from, if there is one. Where the last weights are stable, the first
// that has them, since the weights were not the cause. Otherwise, of those before these weights and before the anomaly,
// the newest that is settled or, where none is, the one that the most stable steps followed (the newest of several).
std::optional<int64_t> restart_step(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                    const LastWeights& last);

}  // namespace megalith
