#include "trainer/step/saved_state.h"

#include <cstring>

namespace megalith {

std::vector<Interval> saved_parts(const Plan& plan, size_t u) {
  const UnitPlan& unit = plan.units[u];
  const MeshShape& mesh = plan.mesh;
  const bool tied = plan.ties_stages() && u == plan.tied;
  const int64_t ends = tied ? 2 : 1, end = tied && plan.chunks.back().last ? 1 : 0;
  const int64_t holders = ends * mesh.data, holder = end * mesh.data + mesh.coordinate(plan.rank, Axis::data);
  if (plan.tensor.degree == 1) return {part_of(unit.shard, holder, holders)};
  std::vector<Interval> parts;
  for (const HeldRun& run : unit.held) {
    const Interval part =
        part_of(intersect(run.elements, unit.shard), run.holder * holders + holder, run.holders * holders);
    if (part.size() > 0) parts.push_back(part);
  }
  return parts;
}

std::vector<SavedTensor> saved_tensors(const Plan& plan, const std::vector<Unit>& units, const Optimizer& optimizer) {
  std::vector<SavedTensor> all;
  for (size_t u = 0; u < units.size(); u++) {
    const UnitPlan& unit = units[u].plan();
    if (!plan.is_saved(unit)) continue;
    const MemoryPlace place = unit.optimizer_on_host ? MemoryPlace::host : MemoryPlace::device;
    for (const Interval part : saved_parts(plan, u)) {
      const auto add = [&](const std::string& path, const Tensor& values, Interval held) {
        const Interval here = intersect(part, held);
        if (here.size() > 0)
          all.push_back({path, u, here, place, values.flat(here.begin - held.begin, here.end - held.begin)});
      };
      add("", units[u].master(), unit.shard);
      for (const Optimizer::StateTensors& state : optimizer.state())
        add(state.path, state.by_unit[u], state.elements[u]);
    }
  }
  return all;
}

bool saves_asynchronously(const CheckpointConfig& config) {
  return config.asynchronous && (config.every > 0 || config.minutes > 0);
}

StateCopy::StateCopy(const std::vector<SavedTensor>& tensors, Memory& memory) : copies_(tensors) {
  Arena& arena = memory.at(MemoryClass::checkpoint, MemoryPlace::host);
  for (SavedTensor& copy : copies_) {
    copy.place = MemoryPlace::host;
    copy.values = arena.tensor(copy.values.dtype(), {copy.values.numel()});
  }
}

void StateCopy::begin(Stream& s, const std::vector<SavedTensor>& tensors) {
  bool synchronized = false;
  for (size_t i = 0; i < tensors.size(); i++) {
    const Tensor &to = copies_[i].values, &from = tensors[i].values;
    if (tensors[i].place == MemoryPlace::device) {
      under_way_.push_back(s.to_host(to, from));
    } else {
      if (!std::exchange(synchronized, true)) s.synchronize();
      std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    }
  }
  if (s.world() != World::cuda) wait();
}

void StateCopy::wait() {
  for (Pending& copy : under_way_) copy.wait();
  under_way_.clear();
}

}  // namespace megalith
