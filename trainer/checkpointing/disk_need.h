// Compares the disk space that a run's checkpoints will take with the free space, before the first step.
#pragma once

#include <cstdint>
#include <string>

#include "configs/config.h"

namespace megalith {

struct DiskNeed {
  std::string words;
  bool fits = true;  // ignores checkpoints by checkpoint.minutes if all are kept: their number is unknown
};

// `bytes`: the size of a checkpoint. `there`: how many the folder holds. `available`: its free bytes. The run continues
// after step `completed`.
DiskNeed disk_need(const Config& config, int64_t bytes, int64_t completed, int64_t there, int64_t available);

}  // namespace megalith
