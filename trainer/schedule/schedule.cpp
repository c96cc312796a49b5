#include "trainer/schedule/schedule.h"

#include <algorithm>

#include "kernels/system/check.h"
#include "trainer/schedule/schedule_lists.h"

namespace megalith {

namespace {

using Kind = Action::Kind;

void check(const PipelineShape& shape) {
  CHECK(shape.stages > 0 && shape.virtual_stages > 0 && shape.microbatches >= 0 && shape.active_microbatches >= 0 &&
            (shape.stages > 1 || shape.virtual_stages == 1),
        "a pipeline of {} stages with {} virtual stages and {} microbatches, {} of them active: there must be at least "
        "1 stage, a single stage has one virtual stage, and microbatches are 0 or more",
        shape.stages, shape.virtual_stages, shape.microbatches, shape.active_microbatches);
  CHECK(!is_v_shaped(shape.kind) || shape.virtual_stages == 2, "a V of {} virtual stages: it has 2",
        shape.virtual_stages);
  CHECK(!is_v_shaped(shape.kind) || shape.active_microbatches == 0 ||
            (shape.kind == PipelineSchedule::zb_v && shape.active_microbatches >= shape.stages),
        "{} active microbatches in a V of {} stages: zb_v needs at least as many as stages", shape.active_microbatches,
        shape.stages);
}

}  // namespace

Actions in_groups(Kind kind, const std::vector<int64_t>& groups, int64_t virtual_stages) {
  Actions actions;
  int64_t first = 0;
  for (const int64_t group : groups) {
    for (int64_t c = 0; c < virtual_stages; c++)
      for (int64_t k = first; k < first + group; k++)
        actions.push_back({kind, k, kind == Kind::forward ? c : virtual_stages - 1 - c});
    first += group;
  }
  return actions;
}

Actions in_groups(Kind kind, const PipelineShape& shape, int64_t group) {
  const auto groups = static_cast<size_t>((shape.microbatches + group - 1) / group);
  return in_groups(kind, std::vector<int64_t>(groups, group), shape.virtual_stages);
}

Actions only_existing(Actions actions, int64_t microbatches) {
  std::erase_if(actions, [&](const Action& a) { return a.microbatch >= microbatches; });
  return actions;
}

std::vector<Actions> make_schedules(const PipelineShape& shape) {
  check(shape);
  std::vector<Actions> lists = is_v_shaped(shape.kind) ? v_lists(shape) : whole_backward_lists(shape);
  return shape.in_halves() ? with_weight_halves(shape, lists) : lists;
}

Actions forward_schedule(const PipelineShape& shape, int64_t stage) {
  check(shape);
  CHECK(0 <= stage && stage < shape.stages, "stage {} of a pipeline of {}", stage, shape.stages);
  if (is_v_shaped(shape.kind)) return v_forwards(shape, stage);
  return only_existing(in_groups(Kind::forward, shape, shape.stages), shape.microbatches);
}

std::vector<int64_t> live_microbatches(const Actions& schedule, int64_t virtual_stages, bool weights) {
  std::vector<int64_t> live(static_cast<size_t>(virtual_stages), 1), now(live.size(), 0);
  for (const Action& action : schedule) {
    const auto c = static_cast<size_t>(action.chunk);
    const bool ends = action.kind != (weights ? Kind::backward_input : Kind::backward_weight);
    now[c] += action.kind == Kind::forward ? 1 : ends ? -1 : 0;
    live[c] = std::max(live[c], now[c]);
  }
  return live;
}

MostAtTurn most_at_turn(const Actions& schedule) {
  MostAtTurn most;
  int64_t outputs = 0, gradients = 0;
  for (const Action& a : schedule) {
    const bool forward = a.kind == Kind::forward;
    if (a.kind == Kind::backward_weight || (forward && a.chunk == 1)) continue;
    if (forward || a.chunk == 1) outputs += forward ? 1 : -1;
    if (!forward) gradients += a.chunk == 1 ? 1 : -1;
    most = {std::max(most.outputs, outputs), std::max(most.gradients, gradients)};
  }
  return most;
}

}  // namespace megalith
