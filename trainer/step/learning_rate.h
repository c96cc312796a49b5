// The learning rate of a step: linear warm-up, a stretch at the highest rate, then decay to the minimum (WSD: Hu et
// al., MiniCPM, arXiv 2404.06395; the square root: Haegele et al., arXiv 2405.18392).
//   s < warmup:  lr (s + 1) / warmup
//   else, with begin = decay_begin or, where that is 0, warmup, and
//   r = min(1, max(0, s - begin) / max(1, decay_steps - begin)):
//     cosine  min + (lr - min) (1 + cos(pi r)) / 2;   linear  lr + (min - lr) r;   constant  lr
//     sqrt    lr + (min - lr) sqrt(r)
#pragma once

#include <cstdint>

#include "configs/config.h"

namespace megalith {

// `step` counts from 0: the rate of update number step + 1.
double learning_rate_at(const OptimizerConfig& config, int64_t step);

}  // namespace megalith
