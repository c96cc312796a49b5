// The prediction: how long a step takes on given machines, and where its time goes, from the rehearsal of one rank of
// each pipeline stage.
#pragma once

#include <string>

#include "configs/config.h"
#include "configs/hardware.h"
#include "trainer/parallel/runtime.h"
#include "trainer/planner/time_line.h"

namespace megalith {

constexpr int64_t most_ranks = int64_t{1} << 16;  // of a plan, which may rehearse each

// Of a job on the machines of [hardware]: a GPU each, node by node, or an equal share of every node's CPU.
int64_t ranks_on_a_node(const Config& config, const Hardware& hardware, int num_ranks);

// What run.device asks for on these machines: never automatic.
Device device_on(const Hardware& hardware, Device wanted);

// Everything of a layout that its time follows from, whatever the machines' numbers are. A step of many microbatches is
// periodic but for its beginning and its end, so two short ones can stand for it: what the longer has more is what its
// additional microbatches take.
struct Rehearsed {
  struct Step {
    int64_t microbatches = 0;
    std::vector<StageTrace> stages;
    double hardware_flops = 0;  // over all ranks
  };
  MeshShape mesh;
  int64_t microbatches = 0;
  Step step;                        // of all microbatches, or of fewer
  Step shorter;                     // empty, or of fewer still
  std::vector<MemorySizes> memory;  // peaks, by stage
};

// As the program `stack` does it; config.model.vocab must be set. whole: no shorter steps stand for the one that is
// asked for.
Rehearsed rehearse_stages(const Config& config, const StackProfile& stack, int num_ranks, bool whole);

struct Prediction {
  double seconds = 0;  // a step
  size_t slowest = 0;  // the stage that waits least for others
  TimeLine line;       // what is `elsewhere` included
  double tokens = 0;   // a step
  double tokens_per_second = 0, mfu = 0, mfu_full = 0, hfu = 0;
};

Prediction predict(const Config& config, const Hardware& hardware, const Rehearsed& rehearsed, bool with_spans = false);

// The table that `megalith plan` prints, with the hours of a run of so many tokens.
std::string report(const Prediction& prediction, const MeshShape& mesh, double tokens_of_run);

// The time line for a trace (trace_file.h), of a prediction with spans: a process a stage.
std::vector<TraceProcess> trace_of(const Prediction& prediction);
// All of it, from a config that names machines and the ranks of a node.
std::vector<TraceProcess> predicted_step(const Config& config, int num_ranks);

}  // namespace megalith
