#include "trainer/schedule/schedule_drain.h"

namespace megalith {

namespace {

using Kind = Action::Kind;

class Drain {
 public:
  Drain(const PipelineShape& shape, const std::vector<Actions>& lists)
      : placement_(shape.placement()),
        microbatches_(shape.microbatches),
        lists_(lists),
        executed_(lists.size(), 0),
        forward_at_(static_cast<size_t>(placement_.num_chunks() * shape.microbatches)),
        input_at_(forward_at_) {
    for (size_t stage = 0; stage < lists.size(); stage++) {
      live_.push_back(live_microbatches(lists[stage], shape.virtual_stages));
      for (size_t i = 0; i < lists[stage].size(); i++) {
        const Action& a = lists[stage][i];
        if (a.kind == Kind::backward_weight) continue;
        at(a.kind, placement_.model_chunk(static_cast<int64_t>(stage), a.chunk), a.microbatch) = i;
      }
    }
    if (placement_.v_shaped)
      gradients_at_turn_ = placement_.gradients_at_turn(live_.back().front(), most_at_turn(lists.back()).gradients);
  }

  bool run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t stage = 0; stage < lists_.size(); stage++)
        while (executed_[stage] < lists_[stage].size() && may_execute(stage)) {
          executed_[stage]++;
          progress = true;
        }
    }
    for (size_t stage = 0; stage < lists_.size(); stage++)
      if (executed_[stage] < lists_[stage].size()) return false;
    return true;
  }

 private:
  size_t& at(Kind kind, int64_t chunk, int64_t microbatch) {
    return (kind == Kind::forward ? forward_at_ : input_at_)[static_cast<size_t>(chunk * microbatches_ + microbatch)];
  }
  size_t executed(int64_t chunk) const { return executed_[static_cast<size_t>(placement_.stage_of(chunk))]; }
  bool is_received(Kind kind, int64_t chunk, int64_t microbatch) {
    if (chunk < 0 || chunk == placement_.num_chunks() || microbatch < 0) return true;
    return executed(chunk) >= at(kind, chunk, microbatch);
  }
  bool is_done(Kind kind, int64_t chunk, int64_t microbatch) { return executed(chunk) > at(kind, chunk, microbatch); }

  bool may_execute(size_t stage) {
    const Actions& list = lists_[stage];
    const size_t i = executed_[stage];
    return may_send(stage, list[i]) && may_receive(stage, list[i]) &&
           (i + 1 == list.size() || may_receive(stage, list[i + 1]));
  }

  bool may_send(size_t stage, const Action& a) {
    if (a.kind == Kind::backward_weight) return true;
    const int64_t chunk = placement_.model_chunk(static_cast<int64_t>(stage), a.chunk), k = a.microbatch;
    const int64_t live = live_[stage][static_cast<size_t>(a.chunk)];
    if (a.kind == Kind::forward)
      return (chunk == 0 || is_done(Kind::forward, chunk - 1, k)) &&
             is_received(Kind::backward_input, chunk - 1, k - live) &&
             (placement_.turns_after(chunk) || is_received(Kind::forward, chunk + 1, k - placement_.outputs(live)));
    return chunk + 1 == placement_.num_chunks() ? is_done(Kind::forward, chunk, k)
                                                : is_done(Kind::backward_input, chunk + 1, k);
  }
  bool may_receive(size_t stage, const Action& a) {
    if (a.kind != Kind::backward_input) return true;
    const int64_t chunk = placement_.model_chunk(static_cast<int64_t>(stage), a.chunk);
    if (chunk > 0 && placement_.turns_after(chunk - 1))
      return is_received(Kind::backward_input, chunk - 2, a.microbatch - gradients_at_turn_);
    const int64_t live = live_[stage][static_cast<size_t>(a.chunk)];
    return is_received(Kind::backward_input, chunk - 1, a.microbatch - placement_.gradients(live));
  }

  const ChunkPlacement placement_;
  const int64_t microbatches_;
  const std::vector<Actions>& lists_;
  std::vector<size_t> executed_;            // by stage
  std::vector<std::vector<int64_t>> live_;  // by stage and its chunk
  int64_t gradients_at_turn_ = 0;
  std::vector<size_t> forward_at_, input_at_;  // place in its list, by chunk of the model, then microbatch
};

}  // namespace

bool come_to_their_ends(const PipelineShape& shape, const std::vector<Actions>& lists) {
  return Drain(shape, lists).run();
}

}  // namespace megalith
