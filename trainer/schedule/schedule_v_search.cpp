#include <algorithm>
#include <array>

#include "trainer/schedule/schedule_drain.h"
#include "trainer/schedule/schedule_search.h"

namespace megalith {

namespace {

// One choice for all stages of a V. If forwards of both chunks can begin, that of chunk `forward` comes first, and of
// backwards that of chunk `backward`; the other members are those of HalvesRule.
struct VChoice {
  int64_t forward = 0, backward = 0;  // chunks
  int64_t warm_up = 0, quarters = 0;
  bool waits_for_room = false;
  bool operator==(const VChoice&) const = default;
};

// Forwards and backwards of both chunks, each in its own order.
struct ChunkOrders {
  explicit ChunkOrders(int64_t microbatches) {
    for (const int64_t chunk : {0, 1})
      for (int64_t k = 0; k < microbatches; k++) {
        forwards[static_cast<size_t>(chunk)].push_back({Action::Kind::forward, k, chunk});
        backwards[static_cast<size_t>(chunk)].push_back({Action::Kind::backward, k, chunk});
      }
  }
  std::array<Actions, 2> forwards, backwards;
};

std::vector<const Actions*> first(const std::array<Actions, 2>& orders, int64_t chunk) {
  return {&orders[static_cast<size_t>(chunk)], &orders[static_cast<size_t>(1 - chunk)]};
}

// The memory of each stage's chunks is that of the given lists, plus that of a number of further microbatches.
HalvesRule rule_of(const PipelineShape& shape, const std::vector<Actions>& given) {
  const int64_t more = std::max<int64_t>(0, shape.active_microbatches - shape.stages);
  HalvesRule rule{.stages = {}, .most = {.chunks = most_held(shape, given).chunks + 2 * more}, .swaps = true};
  rule.slack = 2 * shape.microbatches;  // binds nothing
  for (const Actions& list : given) {
    HalvesRule::Stage& stage = rule.stages.emplace_back();
    stage.most_alive = live_microbatches(list, 2);
    stage.most_held = live_microbatches(list, 2, true);
    for (size_t chunk : {size_t{0}, size_t{1}}) {
      stage.most_alive[chunk] += more;
      stage.most_held[chunk] += more;
    }
  }
  return rule;
}

void choose(HalvesRule& rule, const ChunkOrders& orders, const VChoice& choice) {
  rule.quarters = choice.quarters;
  rule.waits_for_room = choice.waits_for_room;
  for (HalvesRule::Stage& stage : rule.stages) {
    stage.forwards = first(orders.forwards, choice.forward);
    stage.backwards = first(orders.backwards, choice.backward);
    stage.warm_up = choice.warm_up;
  }
}

// Changes one thing after the other, and keeps each improvement, until no change improves.
class VSearch {
 public:
  VSearch(const PipelineShape& shape, const std::vector<Actions>& given)
      : shape_(shape), orders_(shape.microbatches), rule_(rule_of(shape, given)) {}

  VChoice run() {
    const int64_t p = shape_.stages;
    for (const bool waits_for_room : {false, true})
      for (const int64_t warm_up : {p, 3 * p})
        for (const int64_t quarters : {0, 2})
          for (const int64_t forward : {0, 1}) consider({forward, forward, warm_up, quarters, waits_for_room});
    for (bool faster = true; faster;) {
      faster = false;
      for (const int64_t warm_up : {p / 2, p, 2 * p, 3 * p})
        faster |= try_change([=](VChoice& c) { c.warm_up = warm_up; });
      for (const int64_t forward : {0, 1})
        for (const int64_t backward : {0, 1})
          faster |= try_change([=](VChoice& c) { c.forward = forward, c.backward = backward; });
      for (const int64_t quarters : {0, 1, 2, 4}) faster |= try_change([=](VChoice& c) { c.quarters = quarters; });
      faster |= try_change([](VChoice& c) { c.waits_for_room = !c.waits_for_room; });
    }
    return best_;
  }

 private:
  template <class F>
  bool try_change(F change) {
    VChoice next = best_;
    change(next);
    return next != best_ && consider(next);
  }
  bool consider(const VChoice& choice) {
    choose(rule_, orders_, choice);
    const HalvesRun run = run_halves(shape_, rule_);
    if (run.lists.empty() || run.time > rule_.limit || !come_to_their_ends(shape_, run.lists)) return false;
    best_ = choice;
    rule_.limit = run.time - 1;
    return true;
  }

  const PipelineShape& shape_;
  const ChunkOrders orders_;
  HalvesRule rule_;
  VChoice best_;
};

// A step of fewer microbatches, with the same beginning and end, which fills all memory.
int64_t short_v_step(const PipelineShape& shape) {
  const int64_t p = shape.stages, m = shape.microbatches, least = 2 * p + std::max(p, shape.active_microbatches);
  return m < least + p ? m : least + m % p;
}

}  // namespace

std::optional<std::vector<Actions>> search_v_order(const PipelineShape& shape, const std::vector<Actions>& given,
                                                   int64_t time) {
  if (shape.microbatches == 0 || time <= least_time(shape)) return std::nullopt;
  PipelineShape searched = shape;
  searched.microbatches = short_v_step(shape);
  const VChoice choice = VSearch(searched, in_given_order(searched, v_lists(searched)).lists).run();
  const ChunkOrders orders(shape.microbatches);
  HalvesRule rule = rule_of(shape, given);
  rule.limit = time - 1;
  choose(rule, orders, choice);
  HalvesRun run = run_halves(shape, rule);
  if (run.time >= time || !come_to_their_ends(shape, run.lists)) return std::nullopt;
  return std::move(run.lists);
}

}  // namespace megalith
