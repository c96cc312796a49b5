// Which steps of a run were stable, and so what its checkpoints are worth.
//
// A step is in trouble where
//   it is skipped: its loss or gradient norm is not finite, or the norm is a spike (train.skip_norm_above). An overflow
//     that lowers the loss scale is no trouble: the remedy is made;
//   its loss is far above its past: above the median of the last 128 stable steps' losses by more than that median and
//   by
//     more than 1 nat a token. Losses in trouble never become the past;
//   the validation loss after it is not finite.
// Every other step is stable.
//
// The loss of step s + 1 is the first that shows what the weights after step s are worth. So a checkpoint of step s is
// as good as the stable steps in a row that follow it, and *settled* when these are `checkpoint.settle`: until then a
// learning rate that ruins the weights may not have shown yet.
//
// A pure function of the steps that it is told of; the same on every rank, and the same in a run that is resumed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <vector>

#include "trainer/checkpointing/state_reader.h"

namespace megalith {

class Stability {
 public:
  static constexpr size_t window = 128;          // losses that the median is of, at most
  static constexpr size_t most_anomalies = 128;  // the last that are remembered

  // Steps follow one another, counted from 1.
  void record(int64_t step, bool skipped, double loss);
  // Whether a loss on training data is finite and not far above its past.
  bool is_normal(double loss) const;
  // The validation loss after the last step is not finite.
  void anomaly_in_validation() { anomaly(last_step_); }
  // Losses are to be compared with those that come from now on: the run goes on with other data or rates.
  void forget_losses() { losses_.clear(); }

  int64_t last_step() const { return last_step_; }
  // The stable steps in a row that follow step s, up to the last that was seen.
  int64_t stable_after(int64_t s) const;
  bool settled(int64_t s, int64_t settle) const { return stable_after(s) >= settle; }
  // The first step of the trouble that the last step is in; nothing where that was stable.
  std::optional<int64_t> anomaly_since() const;

  // For the state of a checkpoint: "losses" and "troubles", as [first, last] steps; and back, with the steps that the
  // state is after. What an older checkpoint does not say was stable.
  nlohmann::json to_json() const;
  static Stability from(const StateReader& state, int64_t step);

 private:
  struct Anomaly {
    int64_t first, last;  // steps
  };
  void anomaly(int64_t step);

  int64_t last_step_ = 0;
  std::vector<double> losses_;  // of the last stable steps, the oldest first
  std::vector<Anomaly> anomalies_;
};

// Which of the checkpoints of these steps must not be pruned for newer ones. To go back to, should the run turn bad,
// the newest that is settled, or the oldest where none is; and the oldest that may still settle, which takes its place:
// at most two. And as history, where keep_every > 0, the first at or after each of its multiples but 0, so that one is
// kept for good every so many steps, wherever saves by time or by number happen to fall.
std::set<int64_t> needed_checkpoints(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                     int64_t keep_every = 0);

// The weights of a run that trouble has ended, which are those after step `since`, on data that it knows.
struct LastWeights {
  int64_t since = 0;
  bool stable = false;  // Stability::is_normal of their loss
};

// Which checkpoint such a run goes on from. Where its last weights are stable, the first that has them, since it is not
// they that were wrong. Else, of those from before them and from before this trouble, the newest that is settled or,
// where none is, the one that the most stable steps followed; nothing where there is none.
std::optional<int64_t> restart_step(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                    const LastWeights& last);

}  // namespace megalith
