#include "tests/mpi/groups.h"

#include <cstdlib>

#include "kernels/stream/device.h"
#include "tests/mpi/session.h"
#include "trainer/communication/mpi.h"
#include "trainer/communication/nccl.h"

namespace megalith {

namespace {

// The kinds on GPUs share this; it is made when it is first needed, and gone before MPI is.
class Gpus : public testing::Environment {
 public:
  static Communicator& nccl() {
    if (!world_) {
      session_ = std::make_unique<NcclSession>(session(), NcclOptions{});
      world_ = session_->world();
    }
    return *world_;
  }
  void TearDown() override {
    world_.reset();
    session_.reset();
  }

 private:
  inline static std::unique_ptr<NcclSession> session_;
  inline static Group world_;
};
const testing::Environment* const gpus = testing::AddGlobalTestEnvironment(new Gpus);

// The halves of the world, the lower ranks and the upper, of different sizes where the world is odd.
Group half_of(Communicator& world) {
  return world.split("half", num(Channel::in_node), 2 * world.rank() < world.size() ? 0 : 1, world.rank());
}
Group reversed(Communicator& world) { return world.split("reversed", num(Channel::data), 0, -world.rank()); }
Group alone(Communicator& world) { return world.split("alone", num(Channel::shard), world.rank(), 0); }

}  // namespace

std::vector<Kind> kinds() {
  std::vector<Kind> all{
      {"self", [] { return self_communicator("self"); }},
      {"mpi_world", [] { return host_world(session()); }},
      {"mpi_reversed", [] { return reversed(*host_world(session())); }},
      {"mpi_half", [] { return half_of(*host_world(session())); }},
      {"mpi_alone", [] { return alone(*host_world(session())); }},
  };
  if (session().size() > 1) device::expect_waiting_kernels();
  const int gpus_here = device::count();
  if (gpus_here == 0) return all;
  device::select(session().rank_on_this_node() % gpus_here);
  // NCCL wants a GPU for each rank of a host, so ranks that share one say that they are hosts.
  if (gpus_here < session().ranks_on_this_node())
    setenv("NCCL_HOSTID", fmt::format("rank-{}", session().rank()).c_str(), 0);
  const auto staged = [] { return staged_communicator(host_world(session())); };
  for (Kind on_gpu : std::vector<Kind>{
           {"self_on_gpu", [] { return self_communicator("self"); }},
           {"staged_world", staged},
           {"staged_half", [=] { return half_of(*staged()); }},
           {"staged_alone", [=] { return alone(*staged()); }},
           {"nccl_world", [] { return Gpus::nccl().split("world", num(Channel::world), 0, session().rank()); }},
           {"nccl_tensor", [] { return Gpus::nccl().split("tensor", num(Channel::tensor), 0, session().rank()); }},
           {"nccl_reversed", [] { return reversed(Gpus::nccl()); }},
           {"nccl_half", [] { return half_of(Gpus::nccl()); }},
           {"nccl_alone", [] { return alone(Gpus::nccl()); }},
       }) {
    on_gpu.world = World::cuda;
    on_gpu.crosses = !on_gpu.name.starts_with("nccl");
    all.push_back(on_gpu);
  }
  return all;
}

}  // namespace megalith
