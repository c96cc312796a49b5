#include "trainer/parallel/schedule_clock.h"

#include <algorithm>

namespace megalith {

namespace {

using Kind = Action::Kind;

class HalvesClock {
 public:
  HalvesClock(const PipelineShape& shape, const HalvesRule& rule)
      : shape_(shape),
        placement_(shape.placement()),
        rule_(rule),
        stages_(rule.stages.size()),
        forward_ends_(static_cast<size_t>(placement_.num_chunks() * shape.microbatches), never),
        input_ends_(forward_ends_) {
    for (size_t s = 0; s < stages_.size(); s++) {
      stages_[s].done.reserve(3 * rule.stages[s].forwards->size());
      for (int64_t c = 0; c < shape.virtual_stages; c++) {
        const ChunkTimes t = shape_.times_of(placement_.model_chunk(static_cast<int64_t>(s), c));
        stages_[s].left += shape.microbatches * (t.forward + t.input + t.weights);
      }
    }
  }

  HalvesRun run() {
    for (size_t s = 0; s < stages_.size(); s++) starts_.push_back(next_start(s));
    for (;;) {
      const auto next = std::ranges::min_element(starts_, {}, &Start::time);
      if (next->time == never) break;
      const auto stage = static_cast<size_t>(next - starts_.begin());
      if (next->time > rule_.limit - stages_[stage].left) return {};
      execute(stage, *next);
    }
    HalvesRun run{.kinds = {}, .time = 0};
    for (size_t s = 0; s < stages_.size(); s++) {
      if (stages_[s].weights < rule_.stages[s].backwards->size()) return {};
      run.time = std::max({run.time, stages_[s].time, stages_[s].summed});
      run.kinds.push_back(std::move(stages_[s].done));
    }
    return run;
  }

 private:
  struct StageState {
    int64_t time = 0;
    int64_t receiving = 0;  // since when the next message can come: the beginning of the last action
    size_t forwards = 0, backwards = 0, weights = 0;  // executed
    std::vector<Kind> done{};

    int64_t ahead() const { return static_cast<int64_t>(forwards) - static_cast<int64_t>(backwards); }
    int64_t held() const { return static_cast<int64_t>(forwards) - static_cast<int64_t>(weights); }
    int64_t memory = 0;
    int64_t summed = 0;  // the end of the last sum
    int64_t left = 0;    // work
  };
  struct Start {
    int64_t time = never;
    Kind kind = Kind::forward;
  };

  int64_t& end_of(std::vector<int64_t>& ends, int64_t model_chunk, int64_t microbatch) {
    return ends[static_cast<size_t>(model_chunk * shape_.microbatches + microbatch)];
  }
  int64_t model_chunk(const Action& a, size_t stage) const {
    return placement_.model_chunk(static_cast<int64_t>(stage), a.chunk);
  }

  int64_t arrival(const StageState& s, int64_t from, int64_t to, int64_t end) const {
    if (end == never || placement_.stage_of(from) == placement_.stage_of(to)) return end;
    return std::max(end, s.receiving) + shape_.message;
  }
  // Returns when the stage can begin its next forward, or its next half for inputs; `never` where it is not known yet.
  int64_t forward_time(size_t stage) {
    const StageState& s = stages_[stage];
    const Actions& forwards = *rule_.stages[stage].forwards;
    if (s.forwards == forwards.size() || s.held() == rule_.most.chunks) return never;
    const Action& a = forwards[s.forwards];
    const int64_t chunk = model_chunk(a, stage);
    if (s.memory + memory_of(shape_, chunk) > rule_.most.memory) return never;
    return chunk == 0 ? s.time
                      : std::max(s.time, arrival(s, chunk - 1, chunk, end_of(forward_ends_, chunk - 1, a.microbatch)));
  }
  int64_t backward_time(size_t stage) {
    const StageState& s = stages_[stage];
    const Actions& backwards = *rule_.stages[stage].backwards;
    if (s.backwards == backwards.size()) return never;
    const Action& a = backwards[s.backwards];
    const int64_t chunk = model_chunk(a, stage);
    if (end_of(forward_ends_, chunk, a.microbatch) == never) return never;
    if (chunk + 1 == placement_.num_chunks()) return s.time;
    return std::max(s.time, arrival(s, chunk + 1, chunk, end_of(input_ends_, chunk + 1, a.microbatch)));
  }
  Start start_of(Kind kind, size_t stage) {
    return {kind == Kind::forward ? forward_time(stage) : backward_time(stage), kind};
  }

  bool prefers_forward(const StageState& s, const HalvesRule::Stage& rule) const {
    if (rule.list) return (*rule.list)[s.forwards + s.backwards].kind == Kind::forward;
    return s.forwards < rule.forwards->size() && s.ahead() <= rule.warm_up;
  }

  Start next_start(size_t stage) {
    const StageState& s = stages_[stage];
    const HalvesRule::Stage& rule = rule_.stages[stage];
    Start first, other;
    if (s.backwards < rule.backwards->size()) {
      const bool forward = prefers_forward(s, rule);
      first = start_of(forward ? Kind::forward : Kind::backward_input, stage);
      if (first.time == s.time) return first;
      if (rule_.swaps && (forward || s.ahead() <= rule.warm_up + rule_.slack))
        other = start_of(forward ? Kind::backward_input : Kind::forward, stage);
      if (other.time == s.time) return other;
    }
    if (s.weights < s.backwards) {
      const int64_t takes = shape_.times_of(model_chunk((*rule.backwards)[s.weights], stage)).weights;
      const bool soon = first.time != never && 4 * (first.time - s.time) < rule_.quarters * takes;
      if (!soon) return {s.time, Kind::backward_weight};
    }
    return first.time <= other.time ? first : other;
  }

  void execute(size_t stage, const Start start) {
    StageState& s = stages_[stage];
    const HalvesRule::Stage& rule = rule_.stages[stage];
    const bool forward = start.kind == Kind::forward, weights = start.kind == Kind::backward_weight;
    const Action& a =
        forward ? (*rule.forwards)[s.forwards++] : (*rule.backwards)[weights ? s.weights++ : s.backwards++];
    const int64_t chunk = model_chunk(a, stage);
    const ChunkTimes takes = shape_.times_of(chunk);
    if (forward) s.memory += memory_of(shape_, chunk);
    if (weights) s.memory -= memory_of(shape_, chunk);
    s.receiving = start.time;
    const int64_t time = forward ? takes.forward : weights ? takes.weights : takes.input;
    s.time = start.time + time;
    s.left -= time;
    s.done.push_back(start.kind);
    if (weights && a.microbatch + 1 == shape_.microbatches) s.summed = std::max(s.summed, s.time) + takes.sum;
    const int64_t to = forward ? chunk + 1 : chunk - 1;
    if (!weights) end_of(forward ? forward_ends_ : input_ends_, chunk, a.microbatch) = s.time;
    starts_[stage] = next_start(stage);
    if (weights || to < 0 || to == placement_.num_chunks()) return;
    const auto receiver = static_cast<size_t>(placement_.stage_of(to));
    starts_[receiver] = next_start(receiver);
  }

  const PipelineShape& shape_;
  const ChunkPlacement placement_;
  const HalvesRule& rule_;
  std::vector<StageState> stages_;
  std::vector<Start> starts_;                       // by stage
  std::vector<int64_t> forward_ends_, input_ends_;  // by chunk of the model, then microbatch
};

}  // namespace

HeldChunks most_held(const PipelineShape& shape, const std::vector<Actions>& lists) {
  HeldChunks most;
  for (size_t stage = 0; stage < lists.size(); stage++) {
    HeldChunks held;
    for (const Action& a : lists[stage]) {
      const int64_t by = a.kind == Kind::forward ? 1 : -1;
      held.chunks += by;
      held.memory += by * memory_of(shape, shape.placement().model_chunk(static_cast<int64_t>(stage), a.chunk));
      most = {std::max(most.chunks, held.chunks), std::max(most.memory, held.memory)};
    }
  }
  return most;
}

HalvesRun run_halves(const PipelineShape& shape, const HalvesRule& rule) { return HalvesClock(shape, rule).run(); }

std::vector<Actions> lists_of(const HalvesRule& rule, const HalvesRun& run) {
  std::vector<Actions> lists;
  for (size_t stage = 0; stage < run.kinds.size(); stage++) {
    const HalvesRule::Stage& orders = rule.stages[stage];
    auto forward = orders.forwards->begin();
    auto input = orders.backwards->begin(), weights = input;
    Actions& list = lists.emplace_back();
    list.reserve(run.kinds[stage].size());
    for (const Kind kind : run.kinds[stage]) {
      const Action& a = kind == Kind::forward ? *forward++ : kind == Kind::backward_weight ? *weights++ : *input++;
      list.push_back({kind, a.microbatch, a.chunk});
    }
  }
  return lists;
}

}  // namespace megalith
