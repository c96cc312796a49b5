#include "trainer/runtime/transport.h"

namespace megalith {

Transport::Transport(World where, const Session& session) : session_(session) {
  if (where == World::cuda && session.size() > 1) nccl_.emplace(session, NcclOptions{});
}

std::unique_ptr<Communicator> Transport::world() const { return nccl_ ? nccl_->world() : session_.world(); }

void Transport::watch(Stream& s) const {
  if (nccl_) s.on_idle([this] { nccl_->check(); });
}

}  // namespace megalith
