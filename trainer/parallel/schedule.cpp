#include "trainer/parallel/schedule.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/system/check.h"

namespace megalith {

namespace {

using Kind = Action::Kind;
using Actions = std::vector<Action>;

constexpr int64_t forward_time = 1, backward_time = 2, never = std::numeric_limits<int64_t>::max();

void check(const PipelineShape& shape, int64_t stage) {
  CHECK(shape.stages > 0 && shape.virtual_stages > 0 && shape.microbatches >= 0 && shape.active_microbatches >= 0 &&
            (shape.stages > 1 || shape.virtual_stages == 1),
        "a pipeline of {} stages with {} virtual stages and {} microbatches, {} of them active: stages start at 1, one "
        "alone has one virtual stage, microbatches start at 0",
        shape.stages, shape.virtual_stages, shape.microbatches, shape.active_microbatches);
  CHECK(0 <= stage && stage < shape.stages, "stage {} of a pipeline of {}", stage, shape.stages);
}

// A group of microbatches through one chunk after the other. The last group is filled up with microbatches that do not
// exist: an order made for full groups stays free of deadlock when they are left out of it, while one made for the
// incomplete group itself is not (2 stages of 3 chunks, 3 microbatches).
Actions in_groups(Kind kind, const PipelineShape& shape, int64_t group) {
  const int64_t v = shape.virtual_stages;
  Actions actions;
  for (int64_t first = 0; first < shape.microbatches; first += group)
    for (int64_t c = 0; c < v; c++)
      for (int64_t k = first; k < first + group; k++)
        actions.push_back({kind, k, kind == Kind::forward ? c : v - 1 - c});
  return actions;
}

Actions only_existing(Actions actions, int64_t microbatches) {
  std::erase_if(actions, [&](const Action& a) { return a.microbatch >= microbatches; });
  return actions;
}

// All stages against one clock. A stage starts a forward while it is within its warm-up, and a backward otherwise, when
// they have arrived: these are the lists of the papers. Where active_microbatches is below what the schedule needs, a
// list by warm-up counts would wait for forwards that come late, or forever, with backwards at hand; so there a stage
// starts whichever of the two can start first. What has run in some order of time cannot deadlock.
class Clock {
 public:
  explicit Clock(const PipelineShape& shape)
      : shape_(shape),
        gpipe_(shape.kind == PipelineSchedule::gpipe),
        active_(shape.active_microbatches > 0 ? shape.active_microbatches : never),
        bounded_(active_ < (shape.virtual_stages == 1 ? shape.stages : 2 * shape.stages)),
        group_(std::min(gpipe_ ? std::max(shape.microbatches, int64_t{1}) : shape.stages, active_)),
        forwards_(in_groups(Kind::forward, shape, group_)),
        backwards_(in_groups(Kind::backward, shape, group_)),
        microbatches_((shape.microbatches + group_ - 1) / group_ * group_),
        stages_(static_cast<size_t>(shape.stages)),
        forward_arrives_(static_cast<size_t>(num_chunks() * microbatches_), never),
        backward_arrives_(forward_arrives_) {
    std::fill_n(forward_arrives_.begin(), microbatches_, 0);
  }

  // Returns the lists, by stage.
  std::vector<Actions> run() {
    for (;;) {
      std::optional<Start> next;
      for (int64_t s = 0; s < shape_.stages; s++)
        if (const auto start = next_start(s); start && (!next || start->time < next->time)) next = start;
      if (!next) break;
      execute(*next);
    }
    std::vector<Actions> lists;
    for (StageState& s : stages_) lists.push_back(only_existing(std::move(s.actions), shape_.microbatches));
    return lists;
  }

 private:
  struct StageState {
    int64_t time = 0;
    size_t forwards = 0, backwards = 0;  // executed
    int64_t alive = 0;
    Actions actions;
  };
  struct Start {
    int64_t stage, time;
    Action action;
  };

  int64_t num_chunks() const { return shape_.stages * shape_.virtual_stages; }
  int64_t model_chunk(const Action& a, int64_t stage) const { return a.chunk * shape_.stages + stage; }
  int64_t& arrival(Kind kind, int64_t model_chunk, int64_t microbatch) {
    auto& times = kind == Kind::forward ? forward_arrives_ : backward_arrives_;
    return times[static_cast<size_t>(model_chunk * microbatches_ + microbatch)];
  }
  int64_t arrival(const Action& a, int64_t stage) { return arrival(a.kind, model_chunk(a, stage), a.microbatch); }

  size_t wave(size_t position) const { return position / static_cast<size_t>(shape_.virtual_stages * group_); }

  bool may_forward(const StageState& s, int64_t stage) const {
    if (s.forwards == forwards_.size()) return false;
    if (gpipe_) return wave(s.forwards) == wave(s.backwards);
    const int64_t v = shape_.virtual_stages, after = shape_.stages - stage - 1;
    const int64_t warm_up = v == 1 ? after : 2 * after + (v - 1) * group_;
    const bool begins = forwards_[s.forwards].chunk == 0;
    return static_cast<int64_t>(s.forwards - s.backwards) <= warm_up && !(begins && s.alive == active_);
  }

  bool may_backward(const StageState& s) const {
    return s.backwards < s.forwards && !(gpipe_ && wave(s.forwards) == wave(s.backwards));
  }

  std::optional<Start> next_start(int64_t stage) {
    const StageState& s = stages_[static_cast<size_t>(stage)];
    std::optional<Start> start;
    const auto consider = [&](const Action& action) {
      const int64_t arrived = arrival(action, stage), time = std::max(s.time, arrived);
      if (arrived != never && (!start || time < start->time)) start = {stage, time, action};
    };
    const bool may = may_forward(s, stage);
    if (may) consider(forwards_[s.forwards]);
    if (may_backward(s) && (bounded_ || !may)) consider(backwards_[s.backwards]);
    return start;
  }

  void execute(const Start& start) {
    StageState& s = stages_[static_cast<size_t>(start.stage)];
    const Action& a = start.action;
    const int64_t chunk = model_chunk(a, start.stage);
    s.actions.push_back(a);
    if (a.kind == Kind::forward) {
      s.time = start.time + forward_time;
      s.forwards++;
      if (a.chunk == 0) s.alive++;
      const bool turns = chunk + 1 == num_chunks();
      arrival(turns ? Kind::backward : Kind::forward, turns ? chunk : chunk + 1, a.microbatch) = s.time;
    } else {
      s.time = start.time + backward_time;
      s.backwards++;
      if (a.chunk == 0) s.alive--;
      if (chunk > 0) arrival(Kind::backward, chunk - 1, a.microbatch) = s.time;
    }
  }

  const PipelineShape shape_;
  const bool gpipe_;
  const int64_t active_;
  const bool bounded_;  // to fewer than one_f_one_b needs
  const int64_t group_;
  const Actions forwards_, backwards_;  // of every stage
  const int64_t microbatches_;          // with those that fill the last group
  std::vector<StageState> stages_;
  std::vector<int64_t> forward_arrives_, backward_arrives_;  // by chunk of the model, then microbatch
};

// Puts the halves for weights into lists of forwards and backwards, which become halves for inputs: all stages against
// one clock. A stage that would wait for a message does the oldest half for weights that is left, unless the message
// comes before so many quarters of that have passed; so does one that may not begin a forward, since as many chunks of
// microbatches hold memory as on the stage of the given lists that has most. What has run in some order of time cannot
// deadlock.
class WeightHalves {
 public:
  WeightHalves(const PipelineShape& shape, const std::vector<Actions>& lists, int64_t quarters)
      : shape_(shape),
        given_(lists),
        quarters_(quarters),
        stages_(given_.size()),
        forward_arrives_(static_cast<size_t>(shape.stages * shape.virtual_stages * shape.microbatches), never),
        backward_arrives_(forward_arrives_) {
    std::fill_n(forward_arrives_.begin(), shape.microbatches, 0);
    for (const Actions& list : given_) {
      int64_t alive = 0;
      for (const Action& a : list) {
        alive += a.kind == Kind::forward ? 1 : -1;
        most_held_ = std::max(most_held_, alive);
      }
    }
  }

  struct Result {
    std::vector<Actions> lists;  // by stage
    int64_t time = 0;
  };
  Result run() {
    for (;;) {
      std::optional<Start> next;
      for (size_t s = 0; s < stages_.size(); s++)
        if (const auto start = next_start(s); start && (!next || start->time < next->time)) next = start;
      if (!next) break;
      execute(*next);
    }
    Result result;
    for (StageState& s : stages_) {
      result.lists.push_back(std::move(s.actions));
      result.time = std::max(result.time, s.time);
    }
    return result;
  }

 private:
  struct StageState {
    int64_t time = 0;
    size_t given = 0;     // actions of the given list that were executed
    size_t weights = 0;   // positions of the given list up to the last half for weights
    int64_t waiting = 0;  // halves for weights
    int64_t held = 0;     // chunks of microbatches between their forward and their half for weights
    Actions actions{};
  };
  struct Start {
    size_t stage;
    int64_t time;
    bool weights;
  };

  int64_t& arrival(Kind kind, int64_t model_chunk, int64_t microbatch) {
    auto& times = kind == Kind::forward ? forward_arrives_ : backward_arrives_;
    return times[static_cast<size_t>(model_chunk * shape_.microbatches + microbatch)];
  }
  int64_t model_chunk(const Action& a, size_t stage) const {
    return a.chunk * shape_.stages + static_cast<int64_t>(stage);
  }

  ChunkTimes times(const Action& a, size_t stage) const {
    return shape_.times.empty() ? ChunkTimes{} : shape_.times[static_cast<size_t>(model_chunk(a, stage))];
  }
  const Action& oldest_waiting(size_t stage) {
    size_t& at = stages_[stage].weights;
    while (given_[stage][at].kind == Kind::forward) at++;
    return given_[stage][at];
  }

  bool is_soon(int64_t arrived, size_t stage) {
    return 4 * (arrived - stages_[stage].time) < quarters_ * times(oldest_waiting(stage), stage).weights;
  }

  std::optional<Start> next_start(size_t stage) {
    const StageState& s = stages_[stage];
    const Start weights{stage, s.time, true};
    if (s.given < given_[stage].size()) {
      const Action& a = given_[stage][s.given];
      const bool full = a.kind == Kind::forward && s.held == most_held_;
      const int64_t arrived = arrival(a.kind, model_chunk(a, stage), a.microbatch);
      if (!full && arrived <= s.time) return Start{stage, s.time, false};
      if (!full && arrived != never && (s.waiting == 0 || is_soon(arrived, stage))) return Start{stage, arrived, false};
    }
    return s.waiting > 0 ? std::optional(weights) : std::nullopt;
  }

  void execute(const Start& start) {
    StageState& s = stages_[start.stage];
    const Actions& given = given_[start.stage];
    if (start.weights) {
      const Action& a = oldest_waiting(start.stage);
      s.time = start.time + times(a, start.stage).weights;
      s.actions.push_back({Kind::backward_weight, a.microbatch, a.chunk});
      s.weights++;
      s.waiting--;
      s.held--;
      return;
    }
    const Action& a = given[s.given++];
    const int64_t chunk = model_chunk(a, start.stage);
    const ChunkTimes takes = times(a, start.stage);
    s.time = start.time + (a.kind == Kind::forward ? takes.forward : takes.input);
    if (a.kind == Kind::forward) {
      s.held++;
      s.actions.push_back(a);
      const bool turns = chunk + 1 == shape_.stages * shape_.virtual_stages;
      arrival(turns ? Kind::backward : Kind::forward, turns ? chunk : chunk + 1, a.microbatch) = s.time;
    } else {
      s.waiting++;
      s.actions.push_back({Kind::backward_input, a.microbatch, a.chunk});
      if (chunk > 0) arrival(Kind::backward, chunk - 1, a.microbatch) = s.time;
    }
  }

  const PipelineShape shape_;
  const std::vector<Actions>& given_;
  const int64_t quarters_;
  int64_t most_held_ = 0;
  std::vector<StageState> stages_;
  std::vector<int64_t> forward_arrives_, backward_arrives_;  // by chunk of the model, then microbatch
};

std::vector<Actions> all_stages(const PipelineShape& shape) {
  std::vector<Actions> lists = Clock(shape).run();
  if (!shape.in_halves()) return lists;
  std::optional<WeightHalves::Result> best;
  for (const int64_t quarters : {4, 2, 1, 0})
    if (WeightHalves::Result result = WeightHalves(shape, lists, quarters).run(); !best || result.time < best->time)
      best = std::move(result);
  return best->lists;
}

}  // namespace

// The stages of a pipeline are asked for one after the other, and made together.
Actions make_schedule(const PipelineShape& shape, int64_t stage) {
  check(shape, stage);
  thread_local std::optional<PipelineShape> made;
  thread_local std::vector<Actions> lists;
  if (made != shape) {
    lists = all_stages(shape);
    made = shape;
  }
  return lists[static_cast<size_t>(stage)];
}

Actions forward_schedule(const PipelineShape& shape, int64_t stage) {
  check(shape, stage);
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

}  // namespace megalith
