// Compares the states of two checkpoints: everything in them except tensors.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/manifest.h"

namespace megalith {

struct StateDifference {
  // Lists the differences, as "step: 100 | 200", in the state that a resumed run starts from: step, data consumed and
  // skipped, losses, the run's fingerprint, the orders of samples. The writing program and paths of files are not
  // compared.
  std::vector<std::string> state{};
  // Keys of the configuration that differ. Those that decide results are in the fingerprint; the others, such as the
  // layout, may differ between equal states.
  std::vector<std::string> config{};
};

StateDifference compare_states(const Manifest& a, const Manifest& b);

}  // namespace megalith
