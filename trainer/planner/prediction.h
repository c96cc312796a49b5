// Predicts the time of a step on given machines, and where it goes, from the dry run of one rank of each pipeline
// stage.
#pragma once

#include <string>

#include "configs/config.h"
#include "configs/hardware.h"
#include "trainer/parallel/runtime.h"
#include "trainer/planner/time_line.h"

namespace megalith {

constexpr int64_t most_ranks = int64_t{1} << 16;  // maximum for a plan

// Returns the number of ranks on a node: one for each GPU, or for equal shares of a node's CPU.
int64_t ranks_on_a_node(const Config& config, const Hardware& hardware, int num_ranks);

// Resolves `wanted` on these machines; never returns automatic.
Device device_on(const Hardware& hardware, Device wanted);

// Returns the Plan::chip of these machines' GPUs; {} if `device` is the CPU.
cuda::Chip chip_of(const Hardware& hardware, Device device);

// The part of a prediction that does not depend on the rates of the machines. A step of many microbatches is periodic
// except for its beginning and its end, so two short steps represent it: their difference is the time of the additional
// microbatches.
struct StageDryRuns {
  struct Step {
    int64_t microbatches = 0;
    std::vector<StageTrace> stages;
    double hardware_flops = 0;  // over all ranks
  };
  MeshShape mesh;
  int64_t microbatches = 0;
  Step step;                        // with all microbatches, or with fewer
  Step shorter;                     // empty, or with fewer microbatches still
  std::vector<MemorySizes> memory;  // peaks, by stage
};

// Dry-runs the step on these machines, as their stack would run it. config.model.vocab must be set. whole: uses no
// shorter steps.
StageDryRuns dry_run_stages(const Config& config, const Hardware& hardware, int num_ranks, bool whole);

struct Prediction {
  double seconds = 0;
  size_t slowest = 0;  // the stage that waits least for others
  TimeLine line;       // with Account::elsewhere
  double tokens = 0;   // a step
  double tokens_per_second = 0, mfu = 0, mfu_full = 0, hfu = 0;
};

Prediction predict(const Config& config, const Hardware& hardware, const StageDryRuns& dry_runs,
                   bool with_spans = false);

// Returns the table that `megalith plan` prints.
std::string report(const Prediction& prediction, const MeshShape& mesh, double tokens_of_run);

// Returns one process for each stage, for a trace (trace_file.h). The prediction must have spans.
std::vector<TraceProcess> trace_of(const Prediction& prediction);
// Predicts a step of a config that names machines and the ranks of a node.
std::vector<TraceProcess> predicted_step(const Config& config, int num_ranks);

}  // namespace megalith
