// Where a job computes.
#pragma once

#include "configs/config.h"
#include "kernels/stream.h"
#include "trainer/runtime/session.h"

namespace megalith {

// Collective. What run.device asks for, against what the ranks find on their nodes; on GPUs, each rank's own is then
// selected. Errors, on all ranks: as in trainer/runtime/gpu.h.
World choose_device(Device wanted, const Session& session);

// The same for a process alone, which takes the first GPU.
World choose_device(Device wanted);

}  // namespace megalith
