// NCCL: communicators over the GPUs that the ranks have selected. The library is opened on first use, so that a machine
// without it can do everything else.
//
// Transfers of the tensor channel are enqueued on the stream itself, for the next op needs them; each other channel has
// a stream of its own, which events put in order with it. The host waits for none of them, except in a barrier.
// NCCL runs the operations of one communicator one after the other, and a message occupies the GPU until its peer
// arrives. So on the pipeline's channels each neighbour has a line (an NCCL communicator) of its own: a rank that waits
// for the stage before it still sends to the stage after it. NCCL connects on first use, and the host then waits for
// the peer; the lines of messages are connected from the start. Two variables of NCCL's are set for the process:
// NCCL_RUNTIME_CONNECT=0, where nobody has set it, so that what takes memory takes it before ours is allocated, and
// NCCL_NVLS_ENABLE=0 unless NcclOptions::nvls.
//
// Errors. A rank that died leaves the others waiting in transfers, on the GPU, and then on the host as well, in
// whatever call it makes when the GPU takes no more work. So a thread watches: when NCCL reports an error, or the
// session reports that a rank has given up, the host gets an error from its next call or check(), which names channel
// and operation. A host that does not get so far is ended by the watcher, together with the job. That a transfer or a
// call does not end, who watches the session's ring of calls finds (session/watched_session.h): it is told when
// transfers begin and end on the GPU. After an error nothing waits for the GPU any more: communicators are not
// destroyed.
#pragma once

#include <memory>

#include "trainer/communication/communicator.h"
#include "trainer/session/session.h"

namespace megalith {

struct NcclOptions {
  int max_ctas = 0;   // thread blocks (of a GPU's hundred or so) for each communicator; 0: NCCL's choice, and 4
                      // for a pipeline's messages and for what all ranks share
  bool nvls = false;  // sums in NVLink's switches, which differ from call to call
  std::string library = "libnccl.so.2";
};

// Of the library. Errors: a build without CUDA; the library is not found, or too old.
std::string nccl_version(const std::string& library);

class NcclSession {
 public:
  // `session` must outlive it and its communicators. Errors: a build without CUDA; the library is not found.
  NcclSession(const Session& session, NcclOptions options);
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Collective: all ranks of the job, each with a GPU selected. Communicators may outlive the session.
  std::unique_ptr<Communicator> world() const;

  // For Stream::on_idle: the error that the watcher has found, if it has.
  void check() const;

  std::string version() const;

  struct Shared;  // of all communicators

 private:
  const Session& session_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace megalith
