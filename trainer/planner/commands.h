// Runs `megalith plan`, also with --compare and --calibrate, and `megalith search`. Configs may leave out the ranks of
// a node, the vocabulary if there is a tokenizer, and the number of ranks if they name machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/planner/search.h"

namespace megalith {

struct PlanOptions {
  std::string config;  // path
  std::vector<std::string> overrides;
  std::optional<int> ranks;  // absent: all devices of [hardware]
  double tokens = 0;         // whole run, for its hours; 0: train.steps
  std::string trace;         // file for the predicted time line
  std::string compare;       // compares the values of this option (compare.h) instead of planning
};

// Returns whether all transfers match and everything fits on the machines, if the config names them; for a comparison,
// whether any value is valid.
bool run_plan(const PlanOptions& options);

struct SearchOptions {
  std::string config;  // path
  std::vector<std::string> overrides;
  std::optional<int> ranks;
  size_t most = 10;  // layouts to print
  std::string out;   // file for the config of the fastest so far, written again for each faster one
  SearchWatch watch{};
};

// Returns whether any layout fits.
bool run_search(const SearchOptions& options);

struct CalibrationOptions {
  std::vector<std::string> runs;  // folders
  std::vector<std::string> keys;  // numbers to fit
  std::string json;               // file for the result
};

void run_calibration(const CalibrationOptions& options);

}  // namespace megalith
