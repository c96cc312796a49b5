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
  // Returns whether a training loss is finite and not a spike.
  bool is_normal(double loss) const;
  // Records that the validation loss after the last step is not finite.
  void anomaly_in_validation() { anomaly(last_step_); }
  // Forgets the past losses, which cannot be compared with those under other data or rates.
  void forget_losses() { losses_.clear(); }

  int64_t last_step() const { return last_step_; }
  // Returns how many stable steps follow step s without a gap.
  int64_t stable_after(int64_t s) const;
  bool settled(int64_t s, int64_t settle) const { return stable_after(s) >= settle; }
  // Returns the first step of the anomaly that the last step belongs to, or nullopt if the last step was stable.
  std::optional<int64_t> anomaly_since() const;

  // Converts to the "losses" and "troubles", as [first, last] steps, of a checkpoint's state, and back. Steps that an
  // older checkpoint does not mention count as stable.
  nlohmann::json to_json() const;
  static Stability from(const StateReader& state, int64_t step);

 private:
  void anomaly(int64_t step);

  int64_t last_step_ = 0;
  std::vector<double> losses_;                          // losses of the last stable steps, the oldest first
  std::vector<std::pair<int64_t, int64_t>> anomalies_;  // first and last steps
};

// Returns which of the checkpoints of these steps must not be pruned. For a restart: the newest settled one (or the
// oldest, if none has settled) and the oldest that may still settle and replace it. For good, if keep_every > 0: the
// first at or after each positive multiple of it.
std::set<int64_t> needed_checkpoints(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                     int64_t keep_every = 0);

// The weights of a run that ended with an anomaly: step `since` updated them last, and `stable` tells whether their
// loss on data of an earlier step is normal.
struct LastWeights {
  int64_t since = 0;
  bool stable = false;
};

// Returns the checkpoint from which such a run restarts, if there is one. If the last weights are stable, they were not
// the cause, and it is the first checkpoint that has them. Otherwise it is one from before these weights and before the
// anomaly: the newest settled one or, if none has settled, the one that the most stable steps followed (the newest of
// several).
std::optional<int64_t> restart_step(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                    const LastWeights& last);

}  // namespace megalith
