// The position of a run: the state in a checkpoint besides tensors and the optimizer's history.
#pragma once

#include <cstdint>

#include "trainer/checkpointing/stability.h"
#include "trainer/checkpointing/validation_history.h"

namespace megalith {

struct Progress {
  int64_t step = 0;       // completed steps, skipped ones included
  int64_t sequences = 0;  // consumed from the training stream
  int64_t skipped = 0;    // steps
  int64_t skipped_in_a_row = 0;
  Stability stability{};
  ValidationHistory validation{};
};

}  // namespace megalith
