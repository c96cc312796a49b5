#include "trainer/session/open_session.h"

#include <unistd.h>

#include <limits>

#include "kernels/system/check.h"
#include "trainer/session/file_session.h"
#include "trainer/session/mpi_session.h"
#include "trainer/session/single_rank.h"
#include "trainer/session/watched_session.h"

namespace megalith {

namespace {
std::unique_ptr<Session> meet(const CommunicationConfig& config, int* argc, char*** argv) {
  const double timeout = config.timeout > 0 ? config.timeout : std::numeric_limits<double>::infinity();
  if (config.rendezvous.empty()) {
    if (!may_have_peers(environ)) return std::make_unique<SingleRank>();
    return std::make_unique<MpiSession>(argc, argv, timeout);
  }
  return std::make_unique<FileSession>(config.rendezvous, launch_of_this_process(), timeout);
}
}  // namespace

std::unique_ptr<Session> open_session(const CommunicationConfig& config, int* argc, char*** argv) {
  std::unique_ptr<Session> session = meet(config, argc, argv);
  if (session->size() == 1 || config.timeout == 0) return session;
  return std::make_unique<WatchedSession>(std::move(session), config.timeout);
}

void check_launch(const Launch& launch, const Session& session) {
  CHECK(session.size() > 1 || launch.size == 1,
        "{} has started {} processes, but in MPI each is a single rank: they would train {} models into one folder. "
        "Use the mpirun of the MPI that this program was built with, srun with its PMI (srun --mpi=list shows them), "
        "or communication.rendezvous = FOLDER",
        launch.launcher, launch.size, launch.size);
}

}  // namespace megalith
