#include "trainer/step/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megalith {

double learning_rate_at(const OptimizerConfig& config, int64_t step) {
  const double lr = config.learning_rate, low = config.min_learning_rate;
  const auto s = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps);
  if (s < warmup) return lr * (s + 1) / warmup;
  const double begin = config.decay_begin > 0 ? static_cast<double>(config.decay_begin) : warmup;
  const double way = std::max(1.0, static_cast<double>(config.decay_steps) - begin);
  const double r = std::min(1.0, std::max(0.0, s - begin) / way);
  switch (config.decay) {
    case Decay::cosine: return low + 0.5 * (lr - low) * (1 + std::cos(std::numbers::pi * r));
    case Decay::linear: return lr + (low - lr) * r;
    case Decay::sqrt: return lr + (low - lr) * std::sqrt(r);
    default: return lr;
  }
}

}  // namespace megalith
