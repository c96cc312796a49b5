// The time line of a step: the traces of all ranks played with a clock. Ranks that differ only in their place on the
// tensor, shard and data axes do the same at the same time, so one rank of each pipeline stage stands for all.
//
// Laws of the play:
// - A rank has a compute queue, on which ops run in order, and a queue for each channel, on which transfers do. A
//   transfer starts after what was launched before it; a wait holds up the compute queue, and nothing else.
// - The host launches in order and is never held up; an op starts no earlier than the host comes to it. A graph of ops
//   is one launch. A CPU is its own host, and starts each op when the one before has ended.
// - While a rank computes and transfers at once, both take longer: calibrated.overlap of the shorter one is lost.
//   Transfers on the same kind of link share it. Messages and the sum over all ranks are small, and do neither.
// - A message starts when both ends have begun it. The sum over all ranks ends for all when the last has begun it.
// - The accounts of a stage add up to the step.
#pragma once

#include <vector>

#include "configs/hardware.h"
#include "trainer/communication/mesh.h"
#include "trainer/planner/op_time.h"
#include "trainer/step/trace_file.h"

namespace megalith {

// What one rank did in a step, which stands for its stage: transfers and, between them, runs of ops. Runs
// that are the same, as those of layers are, are held once.
struct StageTrace {
  struct Op {
    const char* name;
    Cost cost;
    bool together = false;  // launched with the op before it
    bool operator==(const Op&) const = default;
  };
  using OpRun = std::vector<uint32_t>;  // of ops
  struct Event {
    TraceEvent::Kind kind;  // op: a whole stretch
    Transfer transfer{};
    int8_t channel = -1;
    int32_t peer = -1;
    uint32_t id = 0;  // of the transfer, or the stretch
    int64_t bytes = 0;
  };

  int rank = 0;
  std::vector<Op> ops;
  std::vector<OpRun> op_runs;
  std::vector<Event> events;
};

// Of a trace with ops in it.
StageTrace stage_trace(int rank, const std::vector<TraceEvent>& trace);

struct TimeLine {
  // Between device and host; hidden: over when the work waits for it.
  struct Copies {
    double all = 0, hidden = 0;
  };
  double seconds = 0;                    // of the step
  std::vector<Accounts> accounts;        // by stage
  std::vector<Copies> copies;            // by stage
  std::vector<std::vector<Span>> spans;  // by stage, where asked for; those of compute fill the step
};

// The traces are in the order of the stages and match (matcher.h).
TimeLine time_line(const MeshShape& mesh, const std::vector<StageTrace>& stages, const Hardware& hardware,
                   const Processor& processor, bool with_spans = false);

}  // namespace megalith
