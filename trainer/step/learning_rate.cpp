#include "trainer/step/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megalith {

double learning_rate_at(const OptimizerConfig& config, int64_t step) {
  const double lr = config.learning_rate, low = config.min_learning_rate;
  const auto s = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps);
  if (s < warmup) return lr * (s + 1) / warmup;
  const double r = std::min(1.0, (s - warmup) / std::max(1.0, static_cast<double>(config.decay_steps) - warmup));
  switch (config.decay) {
    case Decay::cosine: return low + 0.5 * (lr - low) * (1 + std::cos(std::numbers::pi * r));
    case Decay::linear: return lr + (low - lr) * r;
    default: return lr;
  }
}

}  // namespace megalith
