// Lists the part of a run's state that each rank saves, and copies it to host memory for an asynchronous save.
#pragma once

#include <string>
#include <vector>

#include "trainer/layout/plan.h"
#include "trainer/parallel/runtime.h"
#include "trainer/parallel/unit.h"
#include "trainer/step/optimizer.h"

namespace megalith {

// Returns the elements of the unit that this rank saves, within its shard, ascending. Elements that several ranks hold
// are divided evenly among them, so that all together save each element once: the copies of data parallelism, the ranks
// of a tensor-parallel group that hold unsplit parameters or the same key-value head, and the two ends of a pipeline
// that hold the embedding.
std::vector<Interval> saved_parts(const Plan& plan, size_t unit);

struct SavedTensor {
  std::string path;  // of the optimizer's state, by its names; empty: weights
  size_t unit = 0;
  Interval part{};  // elements of the unit
  MemoryPlace place = MemoryPlace::device;
  Tensor values;  // of the part: f32 or bf16
};

// Returns the tensors in the memory where the run updates them.
std::vector<SavedTensor> saved_tensors(const Plan& plan, const std::vector<Unit>& units, const Optimizer& optimizer);

// Returns whether a run of this config saves asynchronously.
bool saves_asynchronously(const CheckpointConfig& config);

class StateCopy {
 public:
  // Allocates memory of the class checkpoint.
  StateCopy(const std::vector<SavedTensor>& tensors, Memory& memory);

  // Copies `tensors`, those of the constructor, as of the work launched so far. On a GPU the copy overlaps with later
  // work until wait(). The host waits if the tensors are in its memory or if nothing can overlap.
  void begin(Stream& s, const std::vector<SavedTensor>& tensors);
  // Work launched after this call may change the tensors; in the stream it comes after the copy.
  void wait();

  // Returns the copies in host memory, with the values as of begin(), valid once the stream has passed wait().
  const std::vector<SavedTensor>& tensors() const { return copies_; }

 private:
  std::vector<SavedTensor> copies_;
  std::vector<Pending> under_way_;
};

}  // namespace megalith
