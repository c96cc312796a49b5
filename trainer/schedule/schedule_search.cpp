#include "trainer/schedule/schedule_search.h"

#include <algorithm>

#include "trainer/schedule/schedule_drain.h"

namespace megalith {

namespace {

using Kind = Action::Kind;
using Groups = std::vector<int64_t>;  // numbers of microbatches that pass one chunk after the other

struct OrderChoice {
  Groups forwards, backwards;
  int64_t extra = 0;  // forwards before a stage's first backward, in addition to those of 1F1B
  int64_t slack = 1, quarters = 0;
};

Groups equal_groups(int64_t first, int64_t others, int64_t microbatches) {
  Groups groups;
  for (int64_t left = microbatches, next = first; left > 0; next = others) {
    groups.push_back(std::min(next, left));
    left -= groups.back();
  }
  return groups;
}

// The rule of a choice, and the orders that it points to.
struct ChosenOrder {
  ChosenOrder(const PipelineShape& shape, const HeldChunks& most, const OrderChoice& choice, int64_t limit)
      : forwards(in_groups(Kind::forward, choice.forwards, shape.virtual_stages)),
        backwards(in_groups(Kind::backward, choice.backwards, shape.virtual_stages)),
        rule{.stages = {},
             .most = most,
             .quarters = choice.quarters,
             .swaps = true,
             .slack = choice.slack,
             .limit = limit} {
    const int64_t v = shape.virtual_stages;
    for (int64_t stage = 0; stage < shape.stages; stage++) {
      const int64_t after = shape.stages - stage - 1;
      const int64_t warm_up = v == 1 ? after : 2 * after + (v - 1) * choice.forwards.front();
      rule.stages.push_back({.forwards = {&forwards}, .backwards = {&backwards}, .warm_up = warm_up + choice.extra});
    }
  }
  ChosenOrder(const ChosenOrder&) = delete;

  const Actions forwards, backwards;
  HalvesRule rule;
};

class OrderSearch {
 public:
  OrderSearch(const PipelineShape& shape, const HeldChunks& most)
      : shape_(shape), most_(most), least_(least_time(shape)) {}

  // Returns an empty choice if it finds nothing.
  OrderChoice run() {
    constexpr int64_t most_actions = 400'000, most_runs = 300;
    const int64_t p = shape_.stages, m = shape_.microbatches;
    for (const int64_t first : {p, p + (p + 3) / 4, p + (p + 1) / 2})
      consider({.forwards = equal_groups(first, p, m), .backwards = equal_groups(p, p, m)});
    const int64_t runs = std::min(most_runs, most_actions / (3 * m * p * shape_.virtual_stages));
    for (int64_t i = 0; i < runs && time_ > least_ && time_ != never; i++) {
      OrderChoice next = choice_;
      for (uint64_t changes = 1 + drawn(2); changes > 0; changes--) change(next);
      consider(next);
    }
    return choice_;
  }

 private:
  void consider(const OrderChoice& choice) {
    const ChosenOrder order(shape_, most_, choice, time_);
    const HalvesRun run = run_halves(shape_, order.rule);
    if (run.time == never || run.time > time_) return;
    if (!come_to_their_ends(shape_, run.lists)) return;
    choice_ = choice;
    time_ = run.time;
  }

  void change(OrderChoice& choice) {
    switch (drawn(6)) {
      case 0: choice.extra += static_cast<int64_t>(drawn(5)) - 2; return;
      case 1: choice.quarters = static_cast<int64_t>(drawn(4)); return;
      case 2: choice.slack = static_cast<int64_t>(drawn(12)); return;
      default: change(drawn(2) == 0 ? choice.forwards : choice.backwards);
    }
  }
  // Moves one or two microbatches from a group to another or to a new one.
  void change(Groups& groups) {
    const size_t from = drawn(groups.size()), to = drawn(groups.size() + 1);
    if (to == groups.size()) groups.push_back(0);
    const int64_t moved = std::min(static_cast<int64_t>(1 + drawn(2)), groups[from]);
    groups[from] -= moved;
    groups[to] += moved;
    std::erase(groups, 0);
  }

  uint64_t drawn(uint64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % below;
  }

  const PipelineShape& shape_;
  const HeldChunks most_;
  const int64_t least_;
  OrderChoice choice_;
  int64_t time_ = never;
  uint64_t state_ = 1;
};

// A step of fewer microbatches, with the same beginning and end.
int64_t short_step(const PipelineShape& shape) {
  const int64_t p = shape.stages, m = shape.microbatches;
  return m < 3 * p ? m : 2 * p + m % p;
}

OrderChoice longer(OrderChoice choice, const PipelineShape& shape, int64_t by) {
  for (Groups* groups : {&choice.forwards, &choice.backwards})
    groups->insert(groups->begin() + 1, static_cast<size_t>(by / shape.stages), shape.stages);
  return choice;
}

}  // namespace

int64_t least_time(const PipelineShape& shape) {
  const ChunkPlacement placement = shape.placement();
  std::vector<int64_t> begins(static_cast<size_t>(shape.stages), never);
  int64_t arrives = 0, least = 0;
  for (int64_t chunk = 0; chunk < placement.num_chunks(); chunk++) {
    int64_t& begin = begins[static_cast<size_t>(placement.stage_of(chunk))];
    begin = std::min(begin, arrives);
    arrives += shape.times_of(chunk).forward + (placement.turns_after(chunk) ? 0 : shape.message);
  }
  for (int64_t stage = 0; stage < shape.stages && shape.microbatches > 0; stage++) {
    int64_t work = 0, sum = never;
    for (int64_t c = 0; c < shape.virtual_stages; c++) {
      const ChunkTimes t = shape.times_of(placement.model_chunk(stage, c));
      work += shape.microbatches * (t.forward + t.input + t.weights);
      sum = std::min(sum, t.sum);
    }
    least = std::max(least, begins[static_cast<size_t>(stage)] + work + sum);
  }
  return least;
}

std::optional<std::vector<Actions>> search_order(const PipelineShape& shape, const HeldChunks& most, int64_t time) {
  if (shape.microbatches == 0 || time <= least_time(shape)) return std::nullopt;
  PipelineShape searched = shape;
  searched.microbatches = short_step(shape);
  OrderChoice choice = OrderSearch(searched, most).run();
  if (choice.forwards.empty()) return std::nullopt;
  choice = longer(std::move(choice), shape, shape.microbatches - searched.microbatches);
  const ChosenOrder order(shape, most, choice, time - 1);
  HalvesRun run = run_halves(shape, order.rule);
  if (run.time >= time || !come_to_their_ends(shape, run.lists)) return std::nullopt;
  return std::move(run.lists);
}

}  // namespace megalith
