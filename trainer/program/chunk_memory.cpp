#include "trainer/program/chunk_memory.h"

namespace megalith {

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
  const ChunkPlacement placement = plan.pipeline.placement();
  const MostAtTurn at_turn = most_at_turn(plan.schedule);
  for (const Chunk& chunk : plan.chunks) {
    const int64_t live = training ? most_live[all.size()] : 1, held = training ? most_held[all.size()] : 1;
    ChunkMemory m;
    m.layers = chunk.num_layers;
    m.group = std::min(plan.group, m.layers);
    m.inputs = chunk.turns_before ? all.back().outputs : take(residuals, chunk.first ? live : placement.inputs(live));
    if (chunk.turns_after)
      m.outputs = take(residuals, training ? at_turn.outputs : 1);
    else
      m.outputs = take(residuals, chunk.last ? 1 : placement.outputs(live));
    if (training && chunk.turns_before)
      m.gradients = all.back().gradients;
    else if (training && chunk.turns_after)
      m.gradients = take(residuals, placement.gradients_at_turn(live, at_turn.gradients));
    else if (training)
      m.gradients = take(residuals, chunk.last ? live + (chunk.first ? 0 : placement.messages_under_way(live))
                                               : placement.gradients(live));
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
