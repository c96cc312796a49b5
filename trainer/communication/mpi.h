// Communicators over MPI, for tensors in memory of the host.
#pragma once

#include "trainer/communication/communicator.h"
#include "trainer/session/session.h"

namespace megalith {

// Collective. All ranks of the job. Communicators made from it are gone before the session is. Error: ranks that met
// without MPI.
std::unique_ptr<Communicator> host_world(const Session& session);

}  // namespace megalith
