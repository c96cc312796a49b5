#include <algorithm>

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

namespace {

// The path of a microbatch through the V, in units of time. Every microbatch follows one period after the previous one.
// Steps are from a stage to the next on the path: forwards go down the stages in chunk 0 and up in chunk 1, backwards
// down in chunk 1 and up in chunk 0. Between them are the three turns.
struct Pace {
  int64_t forward_down, forward_up, backward_down, backward_up;  // steps
  int64_t to_chunk_1, to_backward, to_chunk_0;                   // turns
};

struct Timed {
  int64_t time;
  Action action;
};

// The building blocks of Qi et al., arXiv 2405.15362, section 3. If forwards and both halves take one unit, no two
// actions of a stage coincide in a period of six units, and the times between a chunk's forward and its input half add
// up to the same on all stages.
Pace pace_of(const PipelineShape& shape) {
  if (shape.kind == PipelineSchedule::zb_v) return {4, 2, 4, 2, 1, 1, 1};
  return {2, 1, 2, 1, 1, 1, shape.stages % 2 == 0 ? 5 : 2};
}

}  // namespace

std::vector<Actions> v_lists(const PipelineShape& shape) {
  constexpr int64_t period = 6;
  const Pace pace = pace_of(shape);
  const int64_t last = shape.stages - 1;
  const int64_t up = pace.forward_down * last + pace.to_chunk_1, back = up + pace.forward_up * last + pace.to_backward,
                home = back + pace.backward_down * last + pace.to_chunk_0;
  std::vector<Actions> lists;
  for (int64_t s = 0; s <= last; s++) {
    std::vector<Timed> timed;
    for (int64_t k = 0; k < shape.microbatches; k++) {
      timed.push_back({period * k + pace.forward_down * s, {Action::Kind::forward, k, 0}});
      timed.push_back({period * k + up + pace.forward_up * (last - s), {Action::Kind::forward, k, 1}});
      timed.push_back({period * k + back + pace.backward_down * s, {Action::Kind::backward, k, 1}});
      timed.push_back({period * k + home + pace.backward_up * (last - s), {Action::Kind::backward, k, 0}});
    }
    std::ranges::sort(timed, {}, &Timed::time);
    Actions& list = lists.emplace_back();
    for (const Timed& t : timed) list.push_back(t.action);
  }
  return lists;
}

// A period of two units, in which the stages take the two chunks in turn.
Actions v_forwards(const PipelineShape& shape, int64_t stage) {
  std::vector<Timed> timed;
  for (int64_t k = 0; k < shape.microbatches; k++)
    for (int64_t c : {0, 1})
      timed.push_back({2 * k + shape.placement().model_chunk(stage, c), {Action::Kind::forward, k, c}});
  std::ranges::sort(timed, {}, &Timed::time);
  Actions list;
  for (const Timed& t : timed) list.push_back(t.action);
  return list;
}

}  // namespace megalith
