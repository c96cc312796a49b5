#include "trainer/schedule/schedule_clock.h"

#include <algorithm>

namespace megalith {

namespace {

using Kind = Action::Kind;

int64_t total(const std::vector<const Actions*>& orders) {
  int64_t count = 0;
  for (const Actions* order : orders) count += static_cast<int64_t>(order->size());
  return count;
}

class HalvesClock {
 public:
  HalvesClock(const PipelineShape& shape, const HalvesRule& rule)
      : shape_(shape),
        placement_(shape.placement()),
        rule_(rule),
        forward_ends_(static_cast<size_t>(placement_.num_chunks() * shape.microbatches), never),
        input_ends_(forward_ends_),
        forward_begins_(forward_ends_),
        input_begins_(forward_ends_) {
    for (const HalvesRule::Stage& orders : rule.stages) {
      StageState& s = stages_.emplace_back();
      s.forwards = {.orders = orders.forwards, .next = std::vector<size_t>(orders.forwards.size())};
      s.inputs = {.orders = orders.backwards, .next = std::vector<size_t>(orders.backwards.size())};
      s.alive_of_chunk.resize(static_cast<size_t>(shape.virtual_stages));
      s.held_of_chunk = s.alive_of_chunk;
      s.actions = total(orders.forwards) + 2 * total(orders.backwards);
      s.done.reserve(static_cast<size_t>(s.actions));
      for (int64_t c = 0; c < shape.virtual_stages; c++) {
        const ChunkTimes t = shape_.times_of(placement_.model_chunk(static_cast<int64_t>(stages_.size()) - 1, c));
        s.left += shape.microbatches * (t.forward + t.input + t.weights);
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
    HalvesRun run{.lists = {}, .time = 0};
    for (StageState& s : stages_) {
      if (static_cast<int64_t>(s.done.size()) < s.actions) return {};
      run.time = std::max({run.time, s.time, s.summed});
      run.lists.push_back(std::move(s.done));
    }
    return run;
  }

 private:
  struct Queues {
    std::vector<const Actions*> orders{};
    std::vector<size_t> next{};  // one for each order
    int64_t taken = 0;

    const Action* head(size_t order) const {
      return next[order] < orders[order]->size() ? &(*orders[order])[next[order]] : nullptr;
    }
    bool empty() const {
      for (size_t i = 0; i < orders.size(); i++)
        if (head(i)) return false;
      return true;
    }
  };
  struct StageState {
    int64_t time = 0;
    int64_t receiving = 0;  // since when the next message can arrive: the beginning of the last action
    Queues forwards{}, inputs{};
    Actions inputs_done{};  // their weight halves come in the same order
    size_t weights = 0;     // executed
    Actions done{};
    int64_t actions = 0;

    int64_t ahead() const { return forwards.taken - inputs.taken; }
    int64_t held() const { return forwards.taken - static_cast<int64_t>(weights); }
    std::vector<int64_t> alive_of_chunk{}, held_of_chunk{};
    int64_t memory = 0;
    int64_t summed = 0;  // the end of the last sum
    int64_t left = 0;    // work
  };
  struct Start {
    int64_t time = never;
    Kind kind = Kind::forward;
    size_t order = 0;
  };

  int64_t& at(std::vector<int64_t>& times, int64_t model_chunk, int64_t microbatch) {
    return times[static_cast<size_t>(model_chunk * shape_.microbatches + microbatch)];
  }
  int64_t model_chunk(const Action& a, size_t stage) const {
    return placement_.model_chunk(static_cast<int64_t>(stage), a.chunk);
  }

  int64_t arrival(const StageState& s, int64_t from, int64_t to, int64_t end) const {
    if (end == never || placement_.stage_of(from) == placement_.stage_of(to)) return end;
    return std::max(end, s.receiving) + shape_.message;
  }
  // Returns when the chunk's message of the microbatch is received: when the next chunk on its way starts on it;
  // `never` if that is not known yet.
  int64_t received(Kind kind, int64_t chunk, int64_t microbatch) {
    const int64_t to = kind == Kind::forward ? chunk + 1 : chunk - 1;
    if (microbatch < 0 || to < 0 || to == placement_.num_chunks()) return 0;
    if (placement_.stage_of(to) == placement_.stage_of(chunk)) return 0;
    return at(kind == Kind::forward ? forward_begins_ : input_begins_, to, microbatch);
  }
  // Returns when the stage can begin the forward, or the input half; `never` if that is not known yet.
  int64_t forward_time(size_t stage, const Action& a) {
    const StageState& s = stages_[stage];
    const HalvesRule::Stage& rule = rule_.stages[stage];
    const auto c = static_cast<size_t>(a.chunk);
    const int64_t chunk = model_chunk(a, stage);
    if (s.held() == rule_.most.chunks || s.memory + memory_of(shape_, chunk) > rule_.most.memory) return never;
    if (!rule.most_held.empty() && s.held_of_chunk[c] == rule.most_held[c]) return never;
    if (!rule.most_alive.empty() && s.alive_of_chunk[c] == rule.most_alive[c]) return never;
    const int64_t comes =
        chunk == 0 ? s.time : arrival(s, chunk - 1, chunk, at(forward_ends_, chunk - 1, a.microbatch));
    if (!rule_.waits_for_room) return std::max(s.time, comes);
    const int64_t alive = rule.most_alive[c];
    return std::max({s.time, comes, received(Kind::backward_input, chunk, a.microbatch - alive),
                     received(Kind::forward, chunk, a.microbatch - placement_.outputs(alive))});
  }
  int64_t input_time(size_t stage, const Action& a) {
    const StageState& s = stages_[stage];
    const int64_t chunk = model_chunk(a, stage);
    if (at(forward_ends_, chunk, a.microbatch) == never) return never;
    const bool last = chunk + 1 == placement_.num_chunks();
    const int64_t comes = last ? s.time : arrival(s, chunk + 1, chunk, at(input_ends_, chunk + 1, a.microbatch));
    if (!rule_.waits_for_room) return std::max(s.time, comes);
    const int64_t alive = rule_.stages[stage].most_alive[static_cast<size_t>(a.chunk)];
    // Where a V turns, the gradient stays in place for the next chunk, which sends it.
    const int64_t sender = chunk > 0 && placement_.turns_after(chunk - 1) ? chunk - 1 : chunk;
    return std::max(
        {s.time, comes, received(Kind::backward_input, sender, a.microbatch - placement_.gradients(alive))});
  }
  Start start_of(Kind kind, size_t stage) {
    const Queues& queues = kind == Kind::forward ? stages_[stage].forwards : stages_[stage].inputs;
    Start first{.time = never, .kind = kind};
    for (size_t i = 0; i < queues.orders.size(); i++) {
      const Action* a = queues.head(i);
      if (!a) continue;
      const int64_t time = kind == Kind::forward ? forward_time(stage, *a) : input_time(stage, *a);
      if (time < first.time) first = {time, kind, i};
    }
    return first;
  }

  bool prefers_forward(const StageState& s, const HalvesRule::Stage& rule) const {
    if (rule.list) return (*rule.list)[static_cast<size_t>(s.forwards.taken + s.inputs.taken)].kind == Kind::forward;
    return !s.forwards.empty() && s.ahead() <= rule.warm_up;
  }

  Start next_start(size_t stage) {
    const StageState& s = stages_[stage];
    const HalvesRule::Stage& rule = rule_.stages[stage];
    Start first, other;
    if (!s.inputs.empty()) {
      const bool forward = prefers_forward(s, rule);
      first = start_of(forward ? Kind::forward : Kind::backward_input, stage);
      if (first.time == s.time) return first;
      if (rule_.swaps && (forward || s.ahead() <= rule.warm_up + rule_.slack))
        other = start_of(forward ? Kind::backward_input : Kind::forward, stage);
      if (other.time == s.time) return other;
    }
    if (s.weights < s.inputs_done.size()) {
      const int64_t takes = shape_.times_of(model_chunk(s.inputs_done[s.weights], stage)).weights;
      const bool soon = first.time != never && 4 * (first.time - s.time) < rule_.quarters * takes;
      if (!soon) return {s.time, Kind::backward_weight};
    }
    return first.time <= other.time ? first : other;
  }

  static Action take(StageState& s, const Start& start) {
    if (start.kind == Kind::backward_weight) {
      const Action& a = s.inputs_done[s.weights++];
      return {start.kind, a.microbatch, a.chunk};
    }
    Queues& queues = start.kind == Kind::forward ? s.forwards : s.inputs;
    const Action& a = *queues.head(start.order);
    queues.next[start.order]++;
    queues.taken++;
    return {start.kind, a.microbatch, a.chunk};
  }

  void execute(size_t stage, const Start start) {
    StageState& s = stages_[stage];
    const Action a = take(s, start);
    const bool forward = a.kind == Kind::forward, weights = a.kind == Kind::backward_weight;
    const int64_t chunk = model_chunk(a, stage);
    const ChunkTimes takes = shape_.times_of(chunk);
    const int64_t held = forward ? 1 : weights ? -1 : 0;
    s.memory += held * memory_of(shape_, chunk);
    s.held_of_chunk[static_cast<size_t>(a.chunk)] += held;
    if (!weights) s.alive_of_chunk[static_cast<size_t>(a.chunk)] += forward ? 1 : -1;
    s.receiving = start.time;
    const int64_t time = forward ? takes.forward : weights ? takes.weights : takes.input;
    s.time = start.time + time;
    s.left -= time;
    s.done.push_back(a);
    if (a.kind == Kind::backward_input) s.inputs_done.push_back(a);
    if (weights && a.microbatch + 1 == shape_.microbatches) s.summed = std::max(s.summed, s.time) + takes.sum;
    if (!weights) {
      at(forward ? forward_ends_ : input_ends_, chunk, a.microbatch) = s.time;
      at(forward ? forward_begins_ : input_begins_, chunk, a.microbatch) = start.time;
    }
    starts_[stage] = next_start(stage);
    if (weights) return;
    find_start_of(forward ? chunk + 1 : chunk - 1);
    if (rule_.waits_for_room) find_start_of(forward ? chunk - 1 : chunk + 1);
  }
  // Recomputes the next action of the chunk's stage, if the chunk exists.
  void find_start_of(int64_t model_chunk) {
    if (model_chunk < 0 || model_chunk == placement_.num_chunks()) return;
    const auto stage = static_cast<size_t>(placement_.stage_of(model_chunk));
    starts_[stage] = next_start(stage);
  }

  const PipelineShape& shape_;
  const ChunkPlacement placement_;
  const HalvesRule& rule_;
  std::vector<StageState> stages_;
  std::vector<Start> starts_;  // by stage
  // By chunk of the model, then microbatch.
  std::vector<int64_t> forward_ends_, input_ends_, forward_begins_, input_begins_;
};

}  // namespace

HeldChunks most_held(const PipelineShape& shape, const std::vector<Actions>& lists) {
  HeldChunks most{0, 0};
  for (size_t stage = 0; stage < lists.size(); stage++) {
    HeldChunks held{0, 0};
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

}  // namespace megalith
