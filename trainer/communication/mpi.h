// Makes communicators over MPI, for tensors in host memory.
#pragma once

#include "trainer/communication/communicator.h"
#include "trainer/session/session.h"

namespace megalith {

// Collective. Returns the communicator of all ranks. It and those split off it must not outlive the session. Throws
// Error if the ranks were started without MPI.
std::unique_ptr<Communicator> host_world(const Session& session);

}  // namespace megalith
