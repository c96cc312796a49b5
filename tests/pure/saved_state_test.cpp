// The ranks save all of it once, each of them as much as the others that hold the same.
#include "trainer/step/saved_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/pure/small_run.h"

namespace megalith {
namespace {

TEST(SavedState, EveryElementOnceAndEvenly) {
  for (Config config : small_models_of_heads())
    for (int pipeline : {1, 2})
      for (int shards : {1, 2, 3})
        for (int copies : {1, 2, 3}) {
          const auto tensor = static_cast<int>(config.parallel.tensor_parallel_degree);
          SCOPED_TRACE(
              fmt::format("{} heads on {} x {} x {} x {}", config.model.kv_heads(), tensor, pipeline, shards, copies));
          config.model.layers = 2;
          config.parallel.pipeline_parallel_degree = pipeline;
          config.parallel.sharded_data_parallel_degree = shards;
          std::map<std::string, std::vector<int>> times;
          for (const UnitSpec& unit : model_spec(config.model))
            for (const ParamSpec& param : unit.params) times[param.name].assign(size_t(param.shape.numel()), 0);
          std::map<std::pair<std::string, int64_t>, std::vector<int64_t>> sizes;  // by unit and the shard's begin
          int64_t runs = 0;  // of a unit, each of which is dealt out by itself
          const int ranks = tensor * pipeline * shards * copies;
          for (int rank = 0; rank < ranks; rank++) {
            const Plan plan = make_plan(config, ranks, rank);
            ASSERT_EQ(plan.mesh.data, copies);
            Memory memory(World::dry, {});
            for (size_t u = 0; u < plan.units.size(); u++) {
              const UnitPlan& unit_plan = plan.units[u];
              const Unit unit(unit_plan, plan, true, memory);
              int64_t size = 0;
              runs = std::max(runs, std::ssize(unit_plan.held));
              for (const Interval& part : saved_parts(plan, u)) {
                size += part.size();
                for (const PlacedParam& param : unit_plan.params)
                  for (const auto& [shard, local] : unit.shards_of(param, part))
                    for (int64_t e = shard.elements.begin; e < shard.elements.end; e++) {
                      const int64_t width = shard.columns.size();
                      times[param.spec.name][size_t(e / width * shard.cols() + shard.columns.begin + e % width)]++;
                    }
              }
              sizes[{unit_plan.name, unit_plan.shard.begin}].push_back(size);
            }
          }
          for (const auto& [name, counts] : times)
            for (size_t i = 0; i < counts.size(); i++) ASSERT_EQ(counts[i], 1) << name << "[" << i << "]";
          for (const auto& [unit, of_ranks] : sizes) {
            const auto [least, most] = std::minmax_element(of_ranks.begin(), of_ranks.end());
            EXPECT_LE(*most - *least, runs) << unit.first;
          }
        }
}

// A copy stays what it was, takes the memory that was planned, and none where nothing is saved beside the steps.
TEST(SavedState, ACopyIsOfTheMomentItWasMade) {
  for (double on_host : {0.0, 0.5}) {
    Config config = small_config();
    EXPECT_EQ(rehearse(config, make_plan(config, 1, 0)).memory.at(MemoryClass::checkpoint, MemoryPlace::host), 0);
    config.checkpoint.asynchronous = true;
    config.memory.offload_optimizer = on_host;
    SmallRun run(config);
    int64_t bytes = 0;
    for (const SavedTensor& t : run.trainer.saved_tensors()) bytes += t.values.bytes();
    const int64_t planned = run.rehearsal.memory.at(MemoryClass::checkpoint, MemoryPlace::host);
    EXPECT_EQ(run.runtime.memory.peaks().at(MemoryClass::checkpoint, MemoryPlace::host), planned);
    EXPECT_GE(planned, bytes);
    EXPECT_LT(planned, bytes + Arena::alignment * static_cast<int64_t>(run.trainer.saved_tensors().size()));
    run.step(0);
    std::vector<std::vector<float>> before;
    for (const SavedTensor& t : run.trainer.saved_tensors()) before.push_back(values_of(t.values));
    const std::vector<SavedTensor>& copies = run.trainer.copy_state();
    run.step(1);
    int changed = 0;
    for (size_t i = 0; i < copies.size(); i++) {
      EXPECT_EQ(values_of(copies[i].values), before[i]) << copies[i].path << " of unit " << copies[i].unit;
      changed += values_of(run.trainer.saved_tensors()[i].values) != before[i];
    }
    EXPECT_GT(changed, 0);
  }
}

}  // namespace
}  // namespace megalith
