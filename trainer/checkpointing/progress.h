// Progress says where a run stands: what a checkpoint holds besides tensors and the optimizer's history.
#pragma once

#include <cstdint>

#include "trainer/checkpointing/stability.h"

namespace megalith {

struct Progress {
  int64_t step = 0;       // completed, whether they updated or were skipped
  int64_t sequences = 0;  // consumed from the training stream since the run began
  int64_t skipped = 0;    // steps, in all
  int64_t skipped_in_a_row = 0;
  Stability stability{};  // of these steps
};

}  // namespace megalith
