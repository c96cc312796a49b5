#include "trainer/checkpointing/trainer_shards.h"

#include <string>
#include <utility>

namespace megalith {

std::vector<HeldShard> trainer_shards(Trainer& trainer, Units of, bool parameters_only) {
  std::vector<SavedTensor> all;
  const std::vector<Unit>& units = trainer.stage().sharding().units();
  for (size_t u = 0; u < units.size(); u++) {
    const Interval shard = units[u].plan().shard;
    const bool frozen = units[u].plan().frozen;
    if (of != Units::all && frozen != (of == Units::frozen)) continue;
    all.push_back({.path = "", .unit = u, .part = shard, .values = units[u].master()});
    if (parameters_only || frozen) continue;
    for (const Optimizer::StateTensors& state : trainer.optimizer().state())
      if (state.elements[u].size() > 0)
        all.push_back({.path = state.path, .unit = u, .part = state.elements[u], .values = state.by_unit[u]});
  }
  return trainer_shards(trainer, all);
}

std::vector<HeldShard> trainer_shards(Trainer& trainer, const std::vector<SavedTensor>& tensors) {
  std::vector<HeldShard> all;
  for (const SavedTensor& t : tensors) {
    const std::string path = t.path.empty() ? std::string(parameters_path) : t.path + "/";
    const Unit& unit = trainer.stage().sharding().units()[t.unit];
    for (HeldShard& shard : held_shards(unit, path, t.values, t.part)) all.push_back(std::move(shard));
  }
  return all;
}

}  // namespace megalith
