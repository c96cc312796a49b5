// Makes NCCL communicators over the GPUs that the ranks have selected. The library is opened on first use, so that a
// machine without it can do everything else.
//
// Transfers of the tensor channel are enqueued on the compute stream, since the next op needs them. Each other channel
// has a stream of its own, ordered with the compute stream by events. The host waits only in a barrier. NCCL runs the
// operations of one communicator in order, and a message occupies the GPU until its peer arrives, so on the pipeline's
// channels each neighbour has an NCCL communicator of its own: a rank that waits for the stage before it still sends to
// the stage after it. NCCL connects on first use, and the host then waits for the peer, so messages' communicators are
// connected from the start. Two variables are set for the process: NCCL_RUNTIME_CONNECT=0, unless set already, so that
// NCCL allocates before we do, and NCCL_NVLS_ENABLE=0 unless NcclOptions::nvls.
//
// A rank that died leaves the others waiting on the GPU, and then on the host once the GPU takes no more work. So a
// thread watches: when NCCL reports an error, or the session that a rank has given up, the host's next call or check()
// throws an Error with channel and operation; if the host does not get so far, the watcher ends the job. Watchers of
// the session's flight recorder (session/watched_session.h) find transfers that do not end. After an error nothing waits
// for the GPU, and communicators are not destroyed.
#pragma once

#include <memory>

#include "trainer/communication/communicator.h"
#include "trainer/session/session.h"

namespace megalith {

struct NcclOptions {
  int max_ctas = 0;   // thread blocks per communicator; 0: NCCL's choice, and 4 for pipelines and the world
  bool nvls = false;  // sum in NVLink's switches, whose results differ from call to call
  std::string library = "libnccl.so.2";
};

// Throws Error in a build without CUDA, and where the library is not found or too old.
std::string nccl_version(const std::string& library);

class NcclSession {
 public:
  // `session` must outlive it and its communicators. Throws as nccl_version().
  NcclSession(const Session& session, NcclOptions options);
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Collective over all ranks, each with a GPU selected. Communicators may outlive the session.
  std::unique_ptr<Communicator> world() const;

  // Throws the Error that the watcher has found, if any. For Stream::on_idle.
  void check() const;

  std::string version() const;

  struct Shared;

 private:
  const Session& session_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace megalith
