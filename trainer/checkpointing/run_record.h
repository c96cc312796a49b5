// What every checkpoint records about its run, besides weights, state and position.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trainer/checkpointing/adapted_weights.h"
#include "trainer/checkpointing/run_fingerprint.h"

namespace megalith {

struct RunRecord {
  std::optional<RunFingerprint> fingerprint{};      // saved and compared by rank 0; if absent, neither happens
  std::string init_from{};                          // checkpoint.init_from of the run's first start
  nlohmann::json orders = nlohmann::json::array();  // of samples (sample_orders.h); the last one is of this start
  std::optional<BaseWeights> base{};                // of a run with adapters; rank 0's has the fingerprint
};

}  // namespace megalith
