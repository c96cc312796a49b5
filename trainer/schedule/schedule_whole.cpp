#include <algorithm>
#include <optional>

#include "trainer/schedule/schedule_lists.h"

namespace megalith {

namespace {

using Kind = Action::Kind;

constexpr int64_t forward_time = 1, backward_time = 2;

// All stages against one clock. A stage starts a forward while it is within its warm-up, and a backward otherwise, when
// they have arrived: these are the lists of the papers. Where active_microbatches is below what the schedule needs, a
// list by warm-up counts would wait for forwards that come late, or forever, with backwards at hand; so there a stage
// starts whichever of the two can start first. What has run in some order of time cannot deadlock.
class Clock {
 public:
  explicit Clock(const PipelineShape& shape)
      : shape_(shape),
        placement_(shape.placement()),
        gpipe_(shape.kind == PipelineSchedule::gpipe),
        active_(shape.active_microbatches > 0 ? shape.active_microbatches : never),
        bounded_(active_ < (shape.virtual_stages == 1 ? shape.stages : 2 * shape.stages)),
        group_(std::min(gpipe_ ? std::max(shape.microbatches, int64_t{1}) : shape.stages, active_)),
        forwards_(in_groups(Kind::forward, shape, group_)),
        backwards_(in_groups(Kind::backward, shape, group_)),
        microbatches_((shape.microbatches + group_ - 1) / group_ * group_),
        stages_(static_cast<size_t>(shape.stages)),
        forward_arrives_(static_cast<size_t>(placement_.num_chunks() * microbatches_), never),
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

  int64_t model_chunk(const Action& a, int64_t stage) const { return placement_.model_chunk(stage, a.chunk); }
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
      const bool turns = chunk + 1 == placement_.num_chunks();
      arrival(turns ? Kind::backward : Kind::forward, turns ? chunk : chunk + 1, a.microbatch) = s.time;
    } else {
      s.time = start.time + backward_time;
      s.backwards++;
      if (a.chunk == 0) s.alive--;
      if (chunk > 0) arrival(Kind::backward, chunk - 1, a.microbatch) = s.time;
    }
  }

  const PipelineShape shape_;
  const ChunkPlacement placement_;
  const bool gpipe_;
  const int64_t active_;
  const bool bounded_;  // to fewer than one_f_one_b needs
  const int64_t group_;
  const Actions forwards_, backwards_;  // of every stage
  const int64_t microbatches_;          // with those that fill the last group
  std::vector<StageState> stages_;
  std::vector<int64_t> forward_arrives_, backward_arrives_;  // by chunk of the model, then microbatch
};

}  // namespace

std::vector<Actions> whole_backward_lists(const PipelineShape& shape) { return Clock(shape).run(); }

}  // namespace megalith
