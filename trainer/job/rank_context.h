// What a rank of a job works with, made in this order: where it computes, the plan and how much memory it takes and,
// once everything that can be wrong has been looked for, what carries tensors, the memory and the trainer.
#pragma once

#include <memory>
#include <optional>

#include "trainer/communication/transport.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/nodes.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/rehearsal.h"

namespace megalith {

struct RankContext {
  const Session& session;
  DeviceChoice device;
  NodeLayout layout;  // the config that is written to disk stays as it was given
  Plan plan;
  Rehearsal rehearsal;
  std::optional<Transport> transport;
  std::unique_ptr<Communicator> world;
  std::optional<Runtime> runtime;
  std::optional<Trainer> trainer;

  // Collective; up to `layout`. config.model.vocab must be set. Errors as in device_choice.h and nodes.h.
  RankContext(const Config& config, const Session& session);
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // Not collective: plan and rehearsal. Errors as in plan.h.
  void rehearse();

  // Collective: the rest; weights are undefined. JobError: ranks that do not reach one another, memory that is not
  // free.
  void open();

  // Returns what this rank takes beside its arenas, once it was rehearsed; nothing on GPUs.
  ProcessMemory process_memory(int threads) const;
};

}  // namespace megalith
