// The session of a process, as communication.rendezvous asks for it.
#pragma once

#include <memory>

#include "configs/config.h"
#include "trainer/session/launch.h"
#include "trainer/session/session.h"

namespace megalith {

// MPI's, or, with a rendezvous, one over its folder; a process that nobody started beside others is alone and starts no
// MPI, which takes a third of a second. Where there are several ranks and communication.timeout > 0, they are watched
// (watched_session.h). Errors as in file_session.h.
std::unique_ptr<Session> open_session(const CommunicationConfig& config, int* argc, char*** argv);

// Error: a launcher has started several processes and the session knows of one: each would be a job of its own.
void check_launch(const Launch& launch, const Session& session);

}  // namespace megalith
