// What a rank of a job works with, made in this order: the device, the plan and its memory and, after all checks, the
// transport, the memory and the trainer.
#pragma once

#include <memory>
#include <optional>

#include "trainer/communication/transport.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/nodes.h"
#include "trainer/job/symmetric_memory.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/rehearsal.h"

namespace megalith {

struct RankContext {
  const Session& session;
  DeviceChoice device;
  NodeLayout layout;  // its config is for planning; the one written to disk is unchanged
  Plan plan;
  Rehearsal rehearsal;
  std::optional<Transport> transport;
  std::unique_ptr<Communicator> world;
  std::optional<SymmetricMemoryPlan> symmetric;  // if requested
  std::optional<Runtime> runtime;
  std::optional<Trainer> trainer;

  // Collective. Makes `device` and `layout`. config.model.vocab must be set. Errors as in device_choice.h and nodes.h.
  RankContext(const Config& config, const Session& session);
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // Makes plan and rehearsal. Not collective. Errors as in plan.h.
  void rehearse();

  // Collective. Makes the rest; weights are undefined. JobError if ranks cannot reach one another or memory is not
  // free.
  void open();

  // Returns the memory of this rank besides its arenas, after rehearse(); zeros on GPUs.
  ProcessMemory process_memory(int threads) const;
};

}  // namespace megalith
