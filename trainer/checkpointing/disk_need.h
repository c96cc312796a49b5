// How much disk the checkpoints of a run take, against what is free: said before the first step.
#pragma once

#include <cstdint>
#include <string>

#include "configs/config.h"

namespace megalith {

struct DiskNeed {
  std::string words;  // a sentence
  bool fits = true;   // but for checkpoints that checkpoint.minutes adds where all are kept: their number is unknown
};

// `bytes` are those of a checkpoint, `there` is the number of those that the folder has already and `available` its
// free bytes; the run goes on after step `completed`.
DiskNeed disk_need(const Config& config, int64_t bytes, int64_t completed, int64_t there, int64_t available);

}  // namespace megalith
