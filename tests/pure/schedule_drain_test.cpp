// come_to_their_ends() decides from the lists alone. Here all stages rehearse random orders: the rule accepts no order
// that deadlocks, and most of those that end.
#include "trainer/schedule/schedule_drain.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/pure/schedule_simulator.h"
#include "tests/pure/small_run.h"
#include "trainer/planner/matcher.h"

namespace megalith {
namespace {

using enum PipelineSchedule;
using test::Actions;

Config config_of(const PipelineShape& shape) {
  Config config = small_config();
  config.model.layers = shape.stages * shape.virtual_stages;
  config.batch.microbatch_size = 1;
  config.batch.global_batch_size = shape.microbatches;
  config.parallel.pipeline_parallel_degree = shape.stages;
  config.parallel.virtual_stages = shape.virtual_stages;
  config.parallel.pipeline_schedule = shape.kind;
  return config;
}

// Returns the order in which stages would act that take up any work that is ready, in bursts of any length, without
// bounds on the messages between them: where these lists deadlock, bounds are why.
std::vector<Actions> random_order(const PipelineShape& shape, std::mt19937& random) {
  const ChunkPlacement placement = shape.placement();
  const auto chunks = static_cast<size_t>(placement.num_chunks());
  std::vector<int64_t> forwards(chunks), inputs(chunks), weights(chunks);  // done, by chunk of the model
  std::vector<Actions> lists(static_cast<size_t>(shape.stages));
  const auto ready = [&](int64_t stage) {
    Actions all;
    for (int64_t chunk = 0; chunk < shape.virtual_stages; chunk++) {
      const auto c = static_cast<size_t>(placement.model_chunk(stage, chunk));
      const bool first = c == 0, last = c + 1 == chunks;
      if (forwards[c] < (first ? shape.microbatches : forwards[c - 1]))
        all.push_back({Action::Kind::forward, forwards[c], chunk});
      if (inputs[c] < (last ? forwards[c] : inputs[c + 1]))
        all.push_back({Action::Kind::backward_input, inputs[c], chunk});
      if (weights[c] < inputs[c]) all.push_back({Action::Kind::backward_weight, weights[c], chunk});
    }
    return all;
  };
  const auto all_done = [&] { return std::ranges::all_of(weights, [&](auto n) { return n == shape.microbatches; }); };
  while (!all_done()) {
    const int64_t stage = random() % static_cast<size_t>(shape.stages);
    for (auto burst = 1 + random() % 6; burst > 0; burst--) {
      const Actions choice = ready(stage);
      if (choice.empty()) break;
      const Action a = choice[random() % choice.size()];
      lists[static_cast<size_t>(stage)].push_back(a);
      auto& done = a.kind == Action::Kind::forward ? forwards : a.kind == test::weight_half ? weights : inputs;
      done[static_cast<size_t>(placement.model_chunk(stage, a.chunk))]++;
    }
  }
  return lists;
}

// Returns whether all stages end with these lists, with sends that wait for their receives.
bool stages_end(const Config& config, const std::vector<Actions>& lists) {
  Traces traces;
  const auto ranks = static_cast<int>(lists.size());
  for (int rank = 0; rank < ranks; rank++) {
    Plan plan = make_plan(config, ranks, rank);
    plan.schedule = lists[static_cast<size_t>(rank)];
    traces.push_back(rehearse(config, plan).trace);
  }
  return match(make_plan(config, ranks, 0).mesh, traces).empty();
}

struct Case {
  PipelineShape shape;
  double least;  // share of the orders that end and that the rule accepts
};

TEST(ScheduleDrain, AcceptsNoOrderThatDeadlocks) {
  for (const auto& [shape, least] : {Case{{.stages = 2, .virtual_stages = 2, .microbatches = 5, .kind = zb_v}, 0.72},
                                     {{.stages = 3, .virtual_stages = 2, .microbatches = 7, .kind = zb_v}, 0.72},
                                     {{.stages = 4, .virtual_stages = 2, .microbatches = 9, .kind = zb_v}, 0.53},
                                     {{.stages = 6, .virtual_stages = 1, .microbatches = 12, .kind = zb_h1}, 0.3},
                                     {{.stages = 4, .virtual_stages = 2, .microbatches = 8, .kind = zb_h1}, 0.81}}) {
    const Config config = config_of(shape);
    std::mt19937 random(5);
    int orders_that_end = 0, accepted = 0, orders = 500;
    for (int order = 0; order < orders; order++) {
      const std::vector<Actions> lists = random_order(shape, random);
      const bool end = stages_end(config, lists), accept = come_to_their_ends(shape, lists);
      std::string all;
      for (const Actions& list : lists) all += "\n" + test::words(list);
      ASSERT_TRUE(end || !accept) << test::words(shape) << " deadlocks:" << all;
      orders_that_end += end;
      accepted += accept;
    }
    EXPECT_LT(orders_that_end, orders) << test::words(shape) << ": no order deadlocks, which shows nothing";
    EXPECT_GT(accepted, 0) << test::words(shape);
    EXPECT_GE(accepted, least * orders_that_end) << test::words(shape) << ": of " << orders_that_end;
  }
}

}  // namespace
}  // namespace megalith
