// Calibration: the numbers of [calibrated] that make predictions agree with measured runs.
#pragma once

#include <string>
#include <vector>

#include "trainer/planner/prediction.h"

namespace megalith {

// A run folder, and what is predicted for it.
struct MeasuredRun {
  std::string folder;
  Config config;
  Hardware hardware;
  Rehearsed rehearsed;
  double seconds = 0;    // a step, measured: the median of metrics.jsonl, of five steps and more without the first two
  double predicted = 0;  // with `hardware` as it is
};

// config.toml, whose hardware.profile is read, and metrics.jsonl. Error: one is missing, no step was measured, or the
// profile is not named.
std::vector<MeasuredRun> read_runs(const std::vector<std::string>& folders);

// A number that was fitted. It is one for all runs that share its scope: calibrated.gemm, those on the same device;
// stack.*, the same stack; the others, all.
struct Fitted {
  std::string key, scope;
  double before = 0, after = 0;
};

// Changes those numbers in the runs' hardware so that the errors become small: the sum over runs of the logarithm of
// predicted over measured, squared where small and linear where large (Huber), and, so that few runs move no number
// they say nothing about, of how far each number went.
std::vector<Fitted> calibrate(std::vector<MeasuredRun>& runs, const std::vector<std::string>& keys);

// The table that `megalith plan --calibrate` prints.
std::string report(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted);
// The same for programs.
void write_json(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted, const std::string& path);

}  // namespace megalith
