#include "trainer/program/chunk_memory.h"

#include <utility>

namespace megalith {

namespace {

// The most microbatches that are between two actions at once, one of each chunk of a rank.
int64_t most_between(const std::vector<Action>& schedule, std::pair<bool, int64_t> begin,
                     std::pair<bool, int64_t> end) {
  int64_t most = 1, now = 0;
  for (const Action& a : schedule) {
    if (a.kind == Action::Kind::backward_weight) continue;
    const std::pair action{a.kind == Action::Kind::forward, a.chunk};
    now += action == begin ? 1 : action == end ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

std::vector<ChunkMemory> lay_out(const Plan& plan, bool training) {
  std::vector<ChunkMemory> all;
  int32_t residuals = 0, saved = 0, slots = 0, batches = 0;
  const auto take = [](int32_t& taken, int64_t count) {
    const int32_t first = taken;
    taken += as_number(count);
    return Turns{first, as_number(count)};
  };
  const std::vector<int64_t> most_live = live_microbatches(plan.schedule, plan.pipeline.virtual_stages),
                             most_held = live_microbatches(plan.schedule, plan.pipeline.virtual_stages, true);
  for (const Chunk& chunk : plan.chunks) {
    const int64_t live = training ? most_live[all.size()] : 1, held = training ? most_held[all.size()] : 1,
                  behind = plan.pipeline.placement().messages_under_way(live);
    ChunkMemory m;
    m.layers = chunk.num_layers;
    m.group = std::min(plan.group, m.layers);
    m.inputs = chunk.turns_before ? all.back().outputs : take(residuals, live + (chunk.first ? 0 : 1));
    if (chunk.turns_after)
      m.outputs = take(residuals, training ? most_between(plan.schedule, {true, 0}, {false, 1}) : 1);
    else
      m.outputs = take(residuals, chunk.last ? 1 : 1 + behind);
    if (training && chunk.turns_before)
      m.gradients = all.back().gradients;
    else if (training && chunk.turns_after)
      m.gradients = take(residuals, 1 + most_between(plan.schedule, {false, 1}, {false, 0}) + behind);
    else if (training)
      m.gradients = take(residuals, chunk.last ? live + (chunk.first ? 0 : behind) : 2 + behind);
    m.between = take(residuals, live * (m.groups() - 1)).first;
    m.saved = take(saved, live * chunk.num_layers).first;
    m.slots = take(slots, live);
    m.batches = take(batches, held);
    all.push_back(m);
  }
  for (ChunkMemory& m : all) m.inside = residuals;
  return all;
}

}  // namespace megalith
