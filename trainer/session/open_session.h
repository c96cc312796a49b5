// Opens the session of a process, as communication.rendezvous specifies.
#pragma once

#include <memory>

#include "configs/config.h"
#include "trainer/session/launch.h"
#include "trainer/session/session.h"

namespace megalith {

// Returns MPI's session or, with a rendezvous, one over its folder. A process that was started by itself is a single
// rank and starts no MPI, which takes a third of a second. If there are several ranks and communication.timeout > 0,
// they are watched (watched_session.h). Errors as in file_session.h.
std::unique_ptr<Session> open_session(const CommunicationConfig& config, int* argc, char*** argv);

// Error: a launcher has started several processes but the session has only one rank: each would be a job of its own.
void check_launch(const Launch& launch, const Session& session);

}  // namespace megalith
