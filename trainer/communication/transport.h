// Carries tensors between the ranks of a job: MPI for host tensors, communication.backend for GPU tensors.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "configs/config.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"
#include "trainer/communication/nccl.h"
#include "trainer/session/session.h"

namespace megalith {

class Transport {
 public:
  // Carries tensors of world `where`; on GPUs each rank has selected its own. `session` must outlive it. Errors as in
  // nccl.h.
  Transport(World where, const CommunicationConfig& config, const Session& session);

  // Collective. Returns the communicator of all ranks.
  std::unique_ptr<Communicator> world() const;

  // Returns whether the memory of runs must be symmetric (nccl.h); allocate() then allocates it.
  bool wants_symmetric() const { return nccl_ && symmetric_; }
  DeviceAllocator of_device() const;

  std::string name() const;  // "NCCL 2.28.9"

  // Makes a host that waits for the stream see the errors of failed transfers.
  void watch(Stream& s) const;

 private:
  const Session& session_;
  bool staged_, symmetric_;
  std::optional<NcclSession> nccl_;
};

}  // namespace megalith
