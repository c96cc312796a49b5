// Lists what each rank saves of a run's state, and copies it to memory of the host, to be written while steps go on.
#pragma once

#include <string>
#include <vector>

#include "trainer/layout/plan.h"
#include "trainer/parallel/runtime.h"
#include "trainer/parallel/unit.h"
#include "trainer/step/optimizer.h"

namespace megalith {

// Elements of the unit that this rank saves, within its shard, ascending. What several ranks hold is dealt out evenly
// among them, so that all together save each element once: the copies of data parallelism, the ranks of a
// tensor-parallel group that hold what is not split or the same key-value head, and the two ends of a pipeline that
// hold the token table.
std::vector<Interval> saved_parts(const Plan& plan, size_t unit);

struct SavedTensor {
  std::string path;  // of the optimizer's state, as there; empty: weights
  size_t unit = 0;
  Interval part{};  // elements of the unit
  MemoryPlace place = MemoryPlace::device;
  Tensor values;  // of the part: f32 or bf16
};

// As they lie where the run updates them.
std::vector<SavedTensor> saved_tensors(const Plan& plan, const std::vector<Unit>& units, const Optimizer& optimizer);

// Returns whether a run of this config saves while steps go on.
bool saves_asynchronously(const CheckpointConfig& config);

class StateCopy {
 public:
  // Memory of the class checkpoint.
  StateCopy(const std::vector<SavedTensor>& tensors, Memory& memory);

  // Copies what the work launched so far leaves of `tensors`, which are those of the constructor. On a GPU beside what
  // follows, until wait(). The host waits where they lie there or where nothing can go on beside it.
  void begin(Stream& s, const std::vector<SavedTensor>& tensors);
  // Work launched from here on may change what is copied; what follows it in the stream comes after the copy.
  void wait();

  // Like those that were copied, in memory of the host: what begin() found, once the stream has passed wait().
  const std::vector<SavedTensor>& tensors() const { return copies_; }

 private:
  std::vector<SavedTensor> copies_;
  std::vector<Pending> under_way_;
};

}  // namespace megalith
