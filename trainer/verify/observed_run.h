// A run that shows what it computes: every tensor of a step that two layouts can be compared by, under names that every
// layout uses (tensors_of_step in difference.h), as the shards that are on this rank, in f32. It trains like any other,
// from the config's weights; nothing is written to disk.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "kernels/base/tensor_shard.h"
#include "trainer/job/workplace.h"

namespace megalith {

// A rank shows this of one tensor in one step: the values of the shards, one after the other.
struct Shown {
  std::vector<TensorShard> shards;
  std::vector<float> values;
};

// 1 is added to the middle element of this tensor in this step, before it is shown.
struct Fault {
  int64_t step = -1;  // 0: before the first; -1: none
  std::string name;
};

class ObservedRun {
 public:
  // Collective. `fault` tests whoever compares.
  ObservedRun(const Config& config, const Session& session, Fault fault)
      : work_(config, session), fault_(std::move(fault)) {}

  // Collective: the initial weights, which are shown. The workplace has been rehearsed before, in a call of its own: so
  // several runs are known to fit before any takes its memory.
  void start();

  Workplace& work() { return work_; }
  const Config& config() const { return work_.placed.config; }

  // Update number `step`, counted from 1, on that batch of `data` or, without, on made-up tokens.
  void step(int64_t step, const Loader* data);

  // What this rank showed of a tensor since the step before, if anything.
  const std::vector<TensorShard>& shards(const std::string& name) { return shown_[name].shards; }
  // The same with its values, once.
  Shown take(const std::string& name);

  // Replaces the weights of the shards shown last. What was gathered of the old ones is stale since the update, and
  // stays so: a layout that still relies on it is to be found out.
  void set_weights(const std::string& name, std::span<const float> values);
  void weights_set();

 private:
  void show(const TensorShard& shard, Tensor data);
  void show_scalar(const std::string& name, double value);
  // Puts the fault into values of its tensor; where, if it is among them.
  const float* spoil(const TensorShard& shard, std::vector<float>& values) const;
  void keep(const TensorShard& shard, const std::vector<float>& values);
  void show_gradients();
  void show_weights();

  Workplace work_;
  Fault fault_;
  int64_t step_ = 0;
  std::map<std::string, Shown> shown_;
  std::map<std::string, std::vector<Tensor>> weights_;  // memory of the shards
};

}  // namespace megalith
