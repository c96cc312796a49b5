// Where a job computes.
#pragma once

#include "configs/config.h"
#include "kernels/base/stream.h"
#include "trainer/session/session.h"

namespace megalith {

struct DeviceChoice {
  World world = World::cpu;
  int ranks = 1;  // that compute on this rank's GPU
};

// Collective. What run.device asks for, against what the ranks find on their nodes and how they communicate; on GPUs,
// this rank's is then selected. Errors, on all ranks: as in trainer/job/gpu.h; nothing carries tensors of this
// world between ranks that were started without MPI.
DeviceChoice choose_device(const Config& config, const Session& session);

// The same for a process alone, which takes the first GPU.
World choose_device(Device wanted);

}  // namespace megalith
