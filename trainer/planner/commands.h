// `megalith plan` with --compare and --calibrate, and `megalith search`: from options to what is printed. Config files
// may leave out how many ranks share a node, the vocabulary where a tokenizer tells it, and, where they name machines,
// the number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

struct PlanOptions {
  std::string config;  // path
  std::vector<std::string> overrides;
  std::optional<int> ranks;  // none: all devices of [hardware]
  double tokens = 0;         // of the whole run, for its hours; 0: train.steps
  std::string trace;         // file for the predicted time line; empty: none
  std::string compare;       // instead of a plan: an option under each of its values (compare.h); empty: none
};

// Whether all transfers match and, where machines are named, everything fits on them; of a comparison, whether there is
// anything to compare.
bool run_plan(const PlanOptions& options);

struct SearchOptions {
  std::string config;  // path
  std::vector<std::string> overrides;
  std::optional<int> ranks;
  size_t most = 10;  // layouts to print
  std::string out;   // file for the config in the fastest of them; empty: none
};

// Whether any layout fits.
bool run_search(const SearchOptions& options);

struct CalibrationOptions {
  std::vector<std::string> runs;  // folders
  std::vector<std::string> keys;  // numbers of their profiles, to be fitted
  std::string json;               // file for what was found; empty: none
};

void run_calibration(const CalibrationOptions& options);

}  // namespace megalith
