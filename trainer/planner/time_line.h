// Simulates the time line of a step from the ranks' traces. Ranks that differ only on the tensor, shard and data axes
// do the same at the same time, so one rank stands for each pipeline stage. Laws of the simulation:
// - A rank has a compute queue for ops and a queue for each channel's transfers, all in order. A transfer starts after
//   all ops launched before it; a wait blocks only the compute queue.
// - The host launches in order and never blocks; an op starts no earlier than its launch. A graph of ops is one launch.
//   A CPU is its own host and launches each op when the one before has ended.
// - While a rank computes and transfers at once, both take longer: calibrated.overlap of the shorter one is lost.
//   Transfers on the same kind of link share it. Messages and the sum over all ranks are small and do neither.
// - A message starts when both ends have begun it. The sum over all ranks ends for all when the last has begun it.
// - The times of a stage add up to the step's.
#pragma once

#include <vector>

#include "configs/hardware.h"
#include "trainer/communication/mesh_shape.h"
#include "trainer/planner/op_time.h"
#include "trainer/step/trace_file.h"

namespace megalith {

// The transfers of one rank and the runs of ops between them. Equal runs are stored once.
struct StageTrace {
  struct Op {
    const char* name;
    Cost cost;
    bool together = false;  // launched with the op before it
    bool operator==(const Op&) const = default;
  };
  using OpRun = std::vector<uint32_t>;  // indices in `ops`
  struct Event {
    TraceEvent::Kind kind;  // op: a run of ops
    Transfer transfer{};
    int8_t channel = -1;
    int32_t peer = -1;
    uint32_t id = 0;  // number of the transfer or of the run
    int64_t bytes = 0;
    int32_t part = -1;  // of a run: the number of its action (action_number.h), or -1
  };

  int rank = 0;
  int64_t virtual_stages = 1;
  std::vector<Op> ops;
  std::vector<OpRun> op_runs;
  std::vector<Event> events;
};

// The trace must have ops.
StageTrace stage_trace(int rank, const std::vector<TraceEvent>& trace, int64_t virtual_stages = 1);

struct TimeLine {
  struct Copies {                // between device and host
    double all = 0, hidden = 0;  // hidden: complete before a wait for it
  };
  double seconds = 0;
  std::vector<Accounts> breakdowns;  // by stage
  std::vector<Copies> copies;        // by stage
  std::vector<double> tensor_sums;   // by stage: seconds of all transfers, awaited or not (Account::tensor_sums)
  // By stage, if requested. Compute spans fill the step, and actions of the schedule have their own lane.
  std::vector<std::vector<Span>> spans;
};

// The traces must be in the order of the stages and match (matcher.h).
TimeLine time_line(const MeshShape& mesh, const std::vector<StageTrace>& stages, const Hardware& hardware,
                   const Processor& processor, bool with_spans = false);

}  // namespace megalith
