// Calibration fits the numbers of [calibrated] to measured runs.
#pragma once

#include <string>
#include <vector>

#include "trainer/planner/prediction.h"

namespace megalith {

struct MeasuredRun {
  std::string folder;
  Config config;
  Hardware hardware;
  StageDryRuns dry_runs;
  double seconds = 0;    // measured median step; without the first two if there are five or more
  double predicted = 0;  // seconds
};

// Reads each folder's config.toml, the profile that it names and metrics.jsonl. Error: one is missing, or no step was
// measured.
std::vector<MeasuredRun> read_runs(const std::vector<std::string>& folders);

// A fitted number holds for all runs of its scope: calibrated.gemm for a device, stack.* for a stack, others for all.
struct Fitted {
  std::string key, scope;
  double before = 0, after = 0;
};

// Changes `keys` in the runs' hardware to minimize a Huber loss of log(predicted / measured), regularized by the change
// of each number.
std::vector<Fitted> calibrate(std::vector<MeasuredRun>& runs, const std::vector<std::string>& keys);

// Returns the table that `megalith plan --calibrate` prints.
std::string report(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted);
void write_json(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted, const std::string& path);

}  // namespace megalith
