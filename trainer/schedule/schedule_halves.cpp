#include <algorithm>

#include "trainer/schedule/schedule_lists.h"
#include "trainer/schedule/schedule_search.h"

namespace megalith {

namespace {

using Kind = Action::Kind;

Actions only_of(const Actions& list, bool forwards) {
  Actions some;
  std::ranges::copy_if(list, std::back_inserter(some),
                       [=](const Action& a) { return (a.kind == Kind::forward) == forwards; });
  return some;
}

// The order of the given lists: their forwards and input halves keep their order.
struct GivenOrder {
  GivenOrder(const PipelineShape& shape, const std::vector<Actions>& lists)
      : rule{.stages = {}, .most = most_held(shape, lists)} {
    for (const Actions& list : lists) {
      forwards.push_back(only_of(list, true));
      backwards.push_back(only_of(list, false));
    }
    for (size_t s = 0; s < lists.size(); s++)
      rule.stages.push_back({.forwards = {&forwards[s]}, .backwards = {&backwards[s]}, .list = &lists[s]});
    if (shape.kind != PipelineSchedule::v_half) return;
    rule.most.chunks++;  // otherwise stages wait half as long as under 1f1b
    for (int64_t c = 0, room = rule.most.memory; c < shape.placement().num_chunks(); c++)
      rule.most.memory = std::max(rule.most.memory, room + memory_of(shape, c));
  }
  GivenOrder(const GivenOrder&) = delete;

  std::vector<Actions> forwards, backwards;  // by stage
  HalvesRule rule;
};

}  // namespace

HalvesRun in_given_order(const PipelineShape& shape, const std::vector<Actions>& lists) {
  GivenOrder given(shape, lists);
  HalvesRun best;
  for (const int64_t quarters : {4, 2, 1, 0}) {
    given.rule.quarters = quarters;
    if (HalvesRun run = run_halves(shape, given.rule); run.time < best.time) best = std::move(run);
  }
  return best;
}

// Sums over microbatches have one order in all of them, so that the choice changes no bit.
std::vector<Actions> with_weight_halves(const PipelineShape& shape, const std::vector<Actions>& lists) {
  HalvesRun given = in_given_order(shape, lists);
  std::optional<std::vector<Actions>> found;
  if (shape.placement().v_shaped)
    found = search_v_order(shape, given.lists, given.time);
  else if (shape.active_microbatches == 0)
    found = search_order(shape, most_held(shape, lists), given.time);
  return found ? std::move(*found) : std::move(given.lists);
}

}  // namespace megalith
