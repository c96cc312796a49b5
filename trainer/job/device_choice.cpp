#include "trainer/job/device_choice.h"

#include <algorithm>
#include <array>

#include "kernels/base/device.h"
#include "trainer/job/agreement.h"
#include "trainer/job/gpu.h"

namespace megalith {

DeviceChoice choose_device(const Config& config, const Session& session) {
  const Device wanted = config.run.device;
  const Backend backend = config.communication.backend;
  GpuOffer mine{.ranks_on_node = session.ranks_on_this_node(), .rank_on_node = session.rank_on_this_node()};
  together(session, [&] {
    if (wanted == Device::cpu) return;
    if (session.size() > 1) device::expect_waiting_kernels();
    mine.gpus = device::count();
  });
  std::vector<GpuOffer> offers;
  for (const auto& [gpus, ranks, rank] :
       of_all_ranks(session, std::array{mine.gpus, mine.ranks_on_node, mine.rank_on_node}))
    offers.push_back({.gpus = gpus, .ranks_on_node = ranks, .rank_on_node = rank});
  DeviceChoice choice;
  std::string id;
  together(session, [&] {
    choice.world = choose_world(wanted, backend, offers);
    if (choice.world == World::cpu || backend == Backend::mpi) session.require_mpi();
    if (choice.world == World::cpu) return;
    device::select(gpu_of(mine));
    id = device::properties().id;
  });
  if (choice.world == World::cpu) return choice;
  const std::vector<std::string> ids = session.all_gather_text(id);
  if (backend == Backend::nccl) together(session, [&] { check_each_has_its_own(ids); });
  choice.ranks = static_cast<int>(std::count(ids.begin(), ids.end(), id));
  return choice;
}

World choose_device(Device wanted) {
  const GpuOffer mine{.gpus = wanted == Device::cpu ? 0 : device::count()};
  const World world = choose_world(wanted, Backend::nccl, {mine});
  if (world == World::cuda) device::select(0);
  return world;
}

}  // namespace megalith
