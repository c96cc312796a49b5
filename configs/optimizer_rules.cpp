#include "configs/rules.h"

namespace megalith {
namespace {

using Found = std::optional<Problem>;

Found check_learning_rate(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.min_learning_rate > optimizer.learning_rate)
    return problem(config, "optimizer.min_learning_rate",
                   "is above optimizer.learning_rate = {}; the decay only goes down", optimizer.learning_rate);
  // warmup_steps may exceed train.steps: a shortened recipe keeps its learning rates.
  const bool own_rate = optimizer.muon_learning_rate > 0;
  if (optimizer.algorithm != Algorithm::muon && (own_rate || optimizer.muon_min_learning_rate > 0))
    return problem(config, own_rate ? "optimizer.muon_learning_rate" : "optimizer.muon_min_learning_rate",
                   "has no effect with optimizer.algorithm = \"{}\"; set 0 here, or \"muon\" there",
                   to_string(optimizer.algorithm));
  if (const OptimizerConfig rates = muon_rates(optimizer); rates.min_learning_rate > rates.learning_rate)
    return problem(config, "optimizer.muon_min_learning_rate",
                   "makes the lowest rate of Muon's matrices {}, above their highest, {}; the decay only goes down",
                   rates.min_learning_rate, rates.learning_rate);
  if (optimizer.decay_begin > 0 && optimizer.decay_begin < optimizer.warmup_steps)
    return problem(
        config, "optimizer.decay_begin",
        "is within the warm-up, optimizer.warmup_steps = {}; raise it, or set 0 to decay from the warm-up on",
        optimizer.warmup_steps);
  if (optimizer.decay != Decay::constant && optimizer.decay_begin > optimizer.decay_steps)
    return problem(config, "optimizer.decay_begin",
                   "is beyond optimizer.decay_steps = {}, where the decay has ended; lower the one or raise the other",
                   optimizer.decay_steps);
  if (optimizer.decay != Decay::constant && optimizer.warmup_steps > optimizer.decay_steps)
    return problem(config, "optimizer.warmup_steps",
                   "is beyond optimizer.decay_steps = {}, the end of the decay; lower the one or raise the other",
                   optimizer.decay_steps);
  return {};
}

// Refuses layouts that Muon's exchanges (trainer/layout/matrices.h) do not support.
Found check_muon(const Config& config) {
  if (config.optimizer.algorithm != Algorithm::muon) return {};
  if (config.adapter.in_use())
    return problem(config, "optimizer.algorithm",
                   "updates matrices of layers, which adapter.rank = {} freezes; set \"adamw\" here, or 0 there",
                   config.adapter.rank);
  return {};
}

}  // namespace

OptimizerConfig muon_rates(OptimizerConfig config) {
  if (config.muon_learning_rate > 0) config.learning_rate = config.muon_learning_rate;
  if (config.muon_min_learning_rate > 0) config.min_learning_rate = config.muon_min_learning_rate;
  return config;
}

std::optional<Problem> optimizer_problem(const Config& config) {
  for (const auto check : {check_learning_rate, check_muon})
    if (Found found = check(config)) return found;
  return {};
}

}  // namespace megalith
