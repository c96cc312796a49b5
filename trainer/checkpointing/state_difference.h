// What differs between the states of two checkpoints: all that they hold besides tensors.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/manifest.h"

namespace megalith {

struct StateDifference {
  // A line for each: "step: 100 | 200". What a run goes on from: the step, what it has consumed and skipped, losses,
  // the course and the orders of samples. Not compared are the program that wrote it and the places of files.
  std::vector<std::string> state{};
  // Keys of the configuration that differ. What of them decides the course is in the course; the others, such as the
  // layout, may differ where the state is the same.
  std::vector<std::string> config{};
};

StateDifference compare_states(const Manifest& a, const Manifest& b);

}  // namespace megalith
