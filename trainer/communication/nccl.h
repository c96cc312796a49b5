// Makes NCCL communicators over the GPUs that the ranks have selected. The library is opened on first use, so that a
// machine without it can do everything else.
//
// Transfers of the tensor channel are enqueued on the compute stream, since the next op needs them. Each other channel
// has a stream of its own, ordered with the compute stream by events. The host waits only in a barrier. NCCL runs the
// operations of one communicator in order, and a message occupies the GPU until its peer arrives, so on the pipeline's
// channels each neighbour has an NCCL communicator of its own: a rank that waits for the stage before it still sends to
// the stage after it. NCCL connects on first use, and the host then waits for the peer, so messages' communicators are
// connected from the start. Two variables are set for the process: NCCL_RUNTIME_CONNECT=0, unless set already, so that
// NCCL allocates before we do, and NCCL_NVLS_ENABLE=0 unless NcclOptions::nvls; with copy engines also
// NCCL_CTA_POLICY=2.
//
// With NcclOptions::symmetric_memory NCCL allocates the arenas of a run, and groups register them as symmetric windows
// (Communicator::use_symmetric). What then serves a transfer (NCCL's User Guide, "Window Registration" and "Zero-CTA
// Optimization"; its release notes of 2.27.3 and 2.30.7; src/sym_kernels.cc and src/enqueue.cc of 2.28.9):
//   kernels       from 2.27: gathers and sums of f32, bf16 and f16 among GPUs of one node (or NVLink domain) that all
//                 reach one another. They are added in f32 and rounded once, in an order that the size and the ranks
//                 decide: the same bits from call to call and on all ranks, but not those of NCCL's rings.
//   copy_engines  from 2.28, with a driver for CUDA 12.5: gathers and exchanges of such groups; between nodes from
//                 2.30.6. Sums go to the kernels.
// Maxima, sums of f64, and the broadcasts and reductions to one rank that all_gather_of and reduce_scatter_to are made
// of, go as without. So do all transfers of groups on other topologies. NCCL cannot see that a tensor's offset differs
// on another rank, so ranks compare their rehearsals before (trainer/job/symmetric_memory.h). It costs up to 2 MiB of
// the GPU for each arena, the granularity of such memory; 1 MiB for each rank of each group (64 blocks of 2 * 512
// packets of 16 bytes, src/nccl_device/ll_a2a.cc); and address space.
//
// A rank that died leaves the others waiting on the GPU, and then on the host once the GPU takes no more work. So a
// thread watches: when NCCL reports an error, or the session that a rank has given up, the host's next call or check()
// throws an Error with channel and operation; if the host does not get so far, the watcher ends the job. Watchers of
// the session's flight recorder (session/watched_session.h) find transfers that do not end. After an error nothing
// waits for the GPU, and communicators are not destroyed.
#pragma once

#include <memory>

#include "configs/config.h"
#include "trainer/communication/communicator.h"
#include "trainer/session/session.h"

namespace megalith {

struct NcclOptions {
  int max_ctas = 0;   // thread blocks per communicator; 0: NCCL's choice, and 4 for pipelines and the world
  bool nvls = false;  // sum in NVLink's switches, whose results differ from call to call
  SymmetricMemory symmetric_memory = SymmetricMemory::off;
  std::string library = "libnccl.so.2";
};

// Throws Error in a build without CUDA, and if the library is not found or too old.
std::string nccl_version(const std::string& library);

class NcclSession {
 public:
  // `session` must outlive it and its communicators. Throws as nccl_version(), also if the library is too old for the
  // options.
  NcclSession(const Session& session, NcclOptions options);
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Collective over all ranks, each with a GPU selected. Communicators may outlive the session.
  std::unique_ptr<Communicator> world() const;

  // Allocates memory of the GPU that can be symmetric; only with that option.
  device::Memory allocate(int64_t bytes, const std::string& what) const;

  // Throws the Error that the watcher has found, if any. For Stream::on_idle.
  void check() const;

  std::string version() const;

  struct Shared;

 private:
  const Session& session_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace megalith
