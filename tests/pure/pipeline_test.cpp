// The real stages, rehearsed: whatever the schedule, no rank waits for ever, even where nothing is sent before somebody
// receives it, and no message is left over.
#include <gtest/gtest.h>

#include "tests/pure/small_run.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

Traces evaluation_traces(const Config& config, int ranks, int64_t sequences) {
  Traces traces;
  for (int rank = 0; rank < ranks; rank++) {
    const Plan plan = make_plan(config, ranks, rank);
    Runtime runtime(World::dry, {}, Mesh::dry(plan.mesh, rank));
    Trainer trainer(config, plan, runtime);
    runtime.stream.trace().keep(TraceLevel::transfers);
    trainer.evaluate(sequences, {});
    traces.push_back(runtime.stream.trace().events());
  }
  return traces;
}

class PipelineDrains : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Over, PipelineDrains, testing::Range(2, 5),
                         [](const auto& p) { return fmt::format("{}_stages", p.param); });

TEST_P(PipelineDrains, WhateverTheSchedule) {
  const int stages = GetParam();
  for (int chunks = 1; chunks <= 4; chunks++)
    for (int64_t microbatches : {1, 2, 3, 4, 5, 8, 13})
      for (PipelineSchedule kind : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::zb_h1})
        for (int64_t active : {0, 1, 2, 3}) {
          Config config = small_config();
          config.model.layers = stages * chunks;
          config.batch.microbatch_size = 1;
          config.batch.global_batch_size = microbatches;
          config.parallel.pipeline_parallel_degree = stages;
          config.parallel.virtual_stages = chunks;
          config.parallel.pipeline_schedule = kind;
          config.parallel.active_microbatches = active;
          const std::string what = fmt::format("{} x {} chunks, {} microbatches, {}, {} alive", stages, chunks,
                                               microbatches, to_string(kind), active);
          const DryRun run = dry_run(config, stages);
          ASSERT_TRUE(run.faults.empty()) << what << ": " << run.faults.front();
          // An evaluation has its own number of microbatches.
          const auto faults = match(run.mesh, evaluation_traces(config, stages, 7));
          ASSERT_TRUE(faults.empty()) << "evaluation, " << what << ": " << faults.front();
        }
}

// In a V, of equal chunks and of others, for all of which there is memory for few messages under way. How long its
// chunks take, and so its order, depends on their sizes.
TEST(PipelineOfAV, Drains) {
  using enum PipelineSchedule;
  for (int64_t stages : {2, 3, 4, 5, 8})
    for (int64_t microbatches : {int64_t{1}, stages - 1, 2 * stages + 1, 4 * stages, 5 * stages, 8 * stages})
      for (const auto& [kind, active] :
           {std::pair{zb_v, int64_t{0}}, {zb_v, stages + stages / 2}, {zb_v, 2 * stages}, {v_half, 0}})
        for (int64_t heavy : {int64_t{-1}, int64_t{0}, stages - 1, stages, 2 * stages - 1}) {
          Config config = small_config();
          config.model.hidden = microbatches % 2 == 0 ? 512 : 64;
          config.model.vocab = 1000;
          config.parallel.ranks_per_node = microbatches % 3 == 0 ? 0 : 1;
          config.model.context = config.batch.sequence_length = 256;
          config.batch.microbatch_size = 1;
          config.batch.global_batch_size = microbatches;
          config.parallel.pipeline_parallel_degree = stages;
          config.parallel.virtual_stages = 2;
          config.parallel.pipeline_schedule = kind;
          config.parallel.active_microbatches = active;
          config.model.layers = 2 * stages + (heavy >= 0 ? 6 : 0);
          for (int64_t c = 0; c < 2 * stages && heavy >= 0; c++)
            config.parallel.layers_per_stage += c == heavy ? "7 " : "1 ";
          const std::string what = fmt::format("{} stages, {} microbatches, {} with {} active, chunk {} is heavy",
                                               stages, microbatches, to_string(kind), active, heavy);
          const DryRun run = dry_run(config, static_cast<int>(stages));
          ASSERT_TRUE(run.faults.empty()) << what << ": " << run.faults.front();
          const auto faults = match(run.mesh, evaluation_traces(config, static_cast<int>(stages), 7));
          ASSERT_TRUE(faults.empty()) << "evaluation, " << what << ": " << faults.front();
        }
}

}  // namespace
}  // namespace megalith
