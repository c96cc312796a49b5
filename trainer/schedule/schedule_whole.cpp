#include <algorithm>

#include "trainer/schedule/schedule_clock.h"

namespace megalith {

// A whole backward is an input half, twice as long as a forward, and a weight half that takes no time. A stage starts a
// forward while it is within its warm-up, and a backward otherwise, when they have arrived: these are the lists of the
// papers. With fewer active_microbatches than the schedule needs, a list by warm-up counts would wait for late
// forwards, or forever, although backwards are ready; then a stage starts whichever is ready first.
std::vector<Actions> whole_backward_lists(const PipelineShape& shape) {
  using Kind = Action::Kind;
  const bool gpipe = shape.kind == PipelineSchedule::gpipe;
  const int64_t v = shape.virtual_stages, needed = v == 1 ? shape.stages : 2 * shape.stages,
                active = shape.active_microbatches > 0 ? shape.active_microbatches : never,
                group = std::min(gpipe ? std::max(shape.microbatches, int64_t{1}) : shape.stages, active);
  const Actions forwards = in_groups(Kind::forward, shape, group), backwards = in_groups(Kind::backward, shape, group);
  Actions waves;
  for (auto f = forwards.begin(), b = backwards.begin(); gpipe && f != forwards.end(); f += v * group, b += v * group) {
    waves.insert(waves.end(), f, f + v * group);
    waves.insert(waves.end(), b, b + v * group);
  }
  HalvesRule rule{.stages = {}, .most = {}, .swaps = !gpipe && active < needed};
  for (int64_t after = shape.stages - 1; after >= 0; after--) {
    HalvesRule::Stage& stage = rule.stages.emplace_back();
    stage.forwards = {&forwards};
    stage.backwards = {&backwards};
    stage.list = gpipe ? &waves : nullptr;
    stage.warm_up = v == 1 ? after : 2 * after + (v - 1) * group;
    if (!gpipe) stage.most_alive.assign(static_cast<size_t>(v), never);
    if (!gpipe) stage.most_alive.front() = active;
  }
  PipelineShape filled = shape;  // with the microbatches that fill the last group
  filled.microbatches = std::ssize(forwards) / v;
  filled.times.assign(static_cast<size_t>(shape.stages * v), {.forward = 1, .input = 2, .weights = 0});
  filled.message = 0;
  std::vector<Actions> lists = run_halves(filled, rule).lists;
  for (Actions& list : lists) {
    std::erase_if(list, [](const Action& a) { return a.kind == Kind::backward_weight; });
    for (Action& a : list)
      if (a.kind == Kind::backward_input) a.kind = Kind::backward;
    list = only_existing(std::move(list), shape.microbatches);
  }
  return lists;
}

}  // namespace megalith
