// The learning rate of a step: linear warm-up, then decay to the minimum.
//   s < warmup:  lr (s + 1) / warmup
//   else, with r = min(1, (s - warmup) / max(1, decay_steps - warmup)):
//     cosine  min + (lr - min) (1 + cos(pi r)) / 2;   linear  lr + (min - lr) r;   constant  lr
#pragma once

#include <cstdint>

#include "configs/config.h"

namespace megalith {

// `step` counts from 0: the rate of the (step + 1)-th update.
double learning_rate_at(const OptimizerConfig& config, int64_t step);

}  // namespace megalith
