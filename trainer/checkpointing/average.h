// Averages the weights of several checkpoints of a model, as in "Averaging Weights Leads to Wider Optima and Better
// Generalization", Izmailov et al., 2018, https://arxiv.org/abs/1803.05407.
#pragma once

#include <string>
#include <vector>

namespace megalith {

// Returns the checkpoints that the paths name. A single run folder or directory of checkpoints names its `last` newest
// ones, in the order of their steps; 0: all. Error: fewer than two.
std::vector<std::string> checkpoints_to_average(const std::vector<std::string>& paths, int64_t last);

// Writes TO/step-*, of the highest step, in one file: the mean of each weight, summed in double and rounded to fp32.
// It has no optimizer state, so a run begins with it (checkpoint.init_from) but does not resume from it. Reads each
// tensor in blocks of 4 Mi elements. Error: two checkpoints are of different models or tokenizers, one has adapters or
// is damaged, or TO has a checkpoint of that step. Returns the new path.
std::string average_checkpoints(const std::vector<std::string>& checkpoints, const std::string& to);

// The key of a manifest's state that lists the averaged checkpoints.
inline constexpr const char* averaged_key = "average_of";

}  // namespace megalith
