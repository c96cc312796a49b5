#include "trainer/train/device_choice.h"

#include <nlohmann/json.hpp>

#include "kernels/device.h"
#include "trainer/runtime/gpu.h"
#include "trainer/train/agreement.h"

namespace megalith {

World choose_device(Device wanted, const Session& session) {
  GpuOffer mine{.ranks_on_node = session.ranks_on_this_node(), .rank_on_node = session.rank_on_this_node()};
  together(session, [&] {
    if (wanted != Device::cpu) mine.gpus = device::count();
  });
  std::vector<GpuOffer> offers;
  const nlohmann::json offer = {mine.gpus, mine.ranks_on_node, mine.rank_on_node};
  for (const std::string& text : session.all_gather_text(offer.dump())) {
    const auto rank = nlohmann::json::parse(text);
    offers.push_back({.gpus = rank[0], .ranks_on_node = rank[1], .rank_on_node = rank[2]});
  }
  World world = World::cpu;
  std::string id;
  together(session, [&] {
    world = choose_world(wanted, offers);
    if (world != World::cuda) return;
    device::select(gpu_of(mine));
    id = device::properties().id;
  });
  if (world == World::cuda) {
    const std::vector<std::string> ids = session.all_gather_text(id);
    together(session, [&] { check_each_has_its_own(ids); });
  }
  return world;
}

World choose_device(Device wanted) {
  const GpuOffer mine{.gpus = wanted == Device::cpu ? 0 : device::count()};
  const World world = choose_world(wanted, {mine});
  if (world == World::cuda) device::select(0);
  return world;
}

}  // namespace megalith
