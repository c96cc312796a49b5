#include <algorithm>
#include <optional>

#include "trainer/parallel/schedule_lists.h"

namespace megalith {

namespace {

using Kind = Action::Kind;

// Puts the halves for weights into lists of forwards and backwards, which become halves for inputs: all stages against
// one clock. A stage that would wait for a message does the oldest half for weights that is left, unless the message
// comes before so many quarters of that have passed; so does one that may not begin a forward, since as many chunks of
// microbatches hold memory as on the stage of the given lists that has most. What has run in some order of time cannot
// deadlock.
class WeightHalves {
 public:
  WeightHalves(const PipelineShape& shape, const std::vector<Actions>& lists, int64_t quarters)
      : shape_(shape),
        placement_(shape.placement()),
        given_(lists),
        quarters_(quarters),
        stages_(given_.size()),
        forward_arrives_(static_cast<size_t>(shape.placement().num_chunks() * shape.microbatches), never),
        backward_arrives_(forward_arrives_) {
    std::fill_n(forward_arrives_.begin(), shape.microbatches, 0);
    for (const Actions& list : given_) {
      int64_t alive = 0;
      for (const Action& a : list) {
        alive += a.kind == Kind::forward ? 1 : -1;
        most_held_ = std::max(most_held_, alive);
      }
    }
    if (shape.kind == PipelineSchedule::v_half) most_held_++;  // without which stages wait half as long as under 1f1b
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
    return placement_.model_chunk(static_cast<int64_t>(stage), a.chunk);
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
      const bool turns = chunk + 1 == placement_.num_chunks();
      arrival(turns ? Kind::backward : Kind::forward, turns ? chunk : chunk + 1, a.microbatch) = s.time;
    } else {
      s.waiting++;
      s.actions.push_back({Kind::backward_input, a.microbatch, a.chunk});
      if (chunk > 0) arrival(Kind::backward, chunk - 1, a.microbatch) = s.time;
    }
  }

  const PipelineShape shape_;
  const ChunkPlacement placement_;
  const std::vector<Actions>& given_;
  const int64_t quarters_;
  int64_t most_held_ = 0;
  std::vector<StageState> stages_;
  std::vector<int64_t> forward_arrives_, backward_arrives_;  // by chunk of the model, then microbatch
};

}  // namespace

std::vector<Actions> with_weight_halves(const PipelineShape& shape, const std::vector<Actions>& lists) {
  std::optional<WeightHalves::Result> best;
  for (const int64_t quarters : {4, 2, 1, 0})
    if (WeightHalves::Result result = WeightHalves(shape, lists, quarters).run(); !best || result.time < best->time)
      best = std::move(result);
  return best->lists;
}

}  // namespace megalith
