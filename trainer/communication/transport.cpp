#include "trainer/communication/transport.h"

#include "trainer/communication/mpi.h"

namespace megalith {

Transport::Transport(World where, const CommunicationConfig& config, const Session& session)
    : session_(session),
      staged_(where == World::cuda && config.backend == Backend::mpi),
      symmetric_(config.symmetric_memory != SymmetricMemory::off) {
  if (where == World::cuda && config.backend == Backend::nccl && session.size() > 1)
    nccl_.emplace(session, NcclOptions{.max_ctas = static_cast<int>(config.max_ctas),
                                       .nvls = config.nvls,
                                       .symmetric_memory = config.symmetric_memory});
}

DeviceAllocator Transport::of_device() const {
  if (!wants_symmetric()) return device::allocate;
  return [this](int64_t bytes, const std::string& what) { return nccl_->allocate(bytes, what); };
}

std::unique_ptr<Communicator> Transport::world() const {
  if (nccl_) return nccl_->world();
  return staged_ ? staged_communicator(host_world(session_)) : host_world(session_);
}

std::string Transport::name() const {
  if (nccl_) return "NCCL " + nccl_->version();
  return staged_ ? "MPI, through the host" : "MPI";
}

void Transport::watch(Stream& s) const {
  if (nccl_) s.on_idle([this] { nccl_->check(); });
}

}  // namespace megalith
