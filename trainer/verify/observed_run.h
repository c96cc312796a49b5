// Records the tensors of each step (tensors_of_step in difference.h) as this rank's shards in f32. It writes nothing to
// disk.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/samples/loader.h"
#include "kernels/tensor/tensor_shard.h"
#include "trainer/job/rank_context.h"

namespace megalith {

// This rank's shards of a tensor in one step.
struct Recorded {
  std::vector<TensorShard> shards;
  std::vector<float> values;  // shard after shard
};

// Adds 1 to the middle element of a tensor before it is recorded.
struct Fault {
  int64_t step = -1;  // 0: the initial weights; -1: no fault
  std::string name;
};

class ObservedRun {
 public:
  // Collective. `fault` tests the comparison.
  ObservedRun(const Config& config, const Session& session, Fault fault)
      : work_(config, session), fault_(std::move(fault)) {}

  // Collective. Makes and records the initial weights. The context must have been rehearsed, so that both runs are
  // known to fit before either allocates memory.
  void start();

  RankContext& work() { return work_; }
  const Config& config() const { return work_.layout.config; }

  // Runs step `step`, counted from 1, on `data` or, if that is null, on made-up tokens.
  void step(int64_t step, const Loader* data);

  // Returns this rank's shards of a tensor recorded since the previous step.
  const std::vector<TensorShard>& shards(const std::string& name) { return recorded_[name].shards; }
  // Returns them with their values, and drops them.
  Recorded take(const std::string& name);

  // Replaces the weights recorded last. Gathered copies of the old ones stay stale, so that a layout that uses them
  // after the update is detected.
  void set_weights(const std::string& name, std::span<const float> values);
  void weights_set();

 private:
  void record(const TensorShard& shard, Tensor data);
  void record_scalar(const std::string& name, double value);
  // Applies the fault and returns the changed element, if it is in this shard.
  const float* inject_fault(const TensorShard& shard, std::vector<float>& values) const;
  void store(const TensorShard& shard, const std::vector<float>& values);
  void record_gradients();
  void record_weights();

  RankContext work_;
  Fault fault_;
  int64_t step_ = 0;
  std::map<std::string, Recorded> recorded_;
  std::map<std::string, std::vector<Tensor>> weights_;  // by name: the shards' memory
};

}  // namespace megalith
