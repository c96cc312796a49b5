#include "trainer/train/device_choice.h"

#include <nlohmann/json.hpp>

#include "kernels/device.h"
#include "trainer/runtime/gpu.h"
#include "trainer/train/agreement.h"

namespace megalith {

World choose_device(Device wanted, const MpiSession& mpi) {
  GpuOffer mine{.ranks_on_node = mpi.ranks_on_this_node(), .rank_on_node = mpi.rank_on_this_node()};
  together(mpi, [&] {
    if (wanted != Device::cpu) mine.gpus = device::count();
  });
  std::vector<GpuOffer> offers;
  const nlohmann::json offer = {mine.gpus, mine.ranks_on_node, mine.rank_on_node};
  for (const std::string& text : mpi.all_gather_text(offer.dump())) {
    const auto rank = nlohmann::json::parse(text);
    offers.push_back({.gpus = rank[0], .ranks_on_node = rank[1], .rank_on_node = rank[2]});
  }
  World world = World::cpu;
  std::string id;
  together(mpi, [&] {
    world = choose_world(wanted, offers);
    if (world != World::cuda) return;
    device::select(gpu_of(mine));
    id = device::properties().id;
  });
  if (world == World::cuda) {
    const std::vector<std::string> ids = mpi.all_gather_text(id);
    together(mpi, [&] { check_each_has_its_own(ids); });
  }
  return world;
}

}  // namespace megalith
