// What the evaluations of a run have found, and which of its checkpoints had the lowest validation loss.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/checkpointing/state_reader.h"

namespace megalith {

// A pure function of the recorded evaluations: the same on every rank and in a resumed run.
struct ValidationHistory {
  int64_t step = 0;              // steps before the last evaluation
  std::optional<double> loss{};  // of the last evaluation, in nats a token; nullopt if it was not finite
  std::optional<double> lowest{};
  int64_t since_lowest = 0;  // evaluations after the one with the lowest loss

  // Records an evaluation after `step` steps and returns whether its loss is lower than all before. A loss that is not
  // finite is not.
  bool record(int64_t after_step, double new_loss);

  // Convert to the keys "validation_step", "validation_loss", "lowest_validation_loss" and
  // "evaluations_since_lowest_loss" of a checkpoint's state, and back. Older checkpoints lack them.
  nlohmann::json to_json() const;
  static ValidationHistory from(const StateReader& state);
};

// Returns the usable checkpoint in `directory` whose weights had the lowest validation loss, of equal ones the oldest,
// or "" if none was evaluated. Only losses on the validation data of the newest evaluated checkpoint are compared.
std::string best_checkpoint(const std::string& directory);

}  // namespace megalith
