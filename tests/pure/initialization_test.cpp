// Initial weights are a pure function of the seed: however many shards, the same numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/pure/small_run.h"
#include "trainer/checkpointing/held_shards.h"

namespace megalith {
namespace {

using Values = std::map<std::string, std::vector<float>>;

// Every rank's part initialised by itself, put together again. What several ranks hold must be equal; `padding` gets
// the elements that belong to no parameter.
Values initialised(const Config& config, int ranks, uint64_t seed, std::vector<float>* padding = nullptr) {
  Values all;
  for (const UnitSpec& unit : model_spec(config.model))
    for (const ParamSpec& param : unit.params)
      all[param.name].assign(static_cast<size_t>(param.shape.numel()), std::nanf(""));
  for (int rank = 0; rank < ranks; rank++) {
    const Plan plan = make_plan(config, ranks, rank);
    Stream s(World::cpu);
    MemorySizes sizes;
    sizes.bytes.fill(int64_t{1} << 20);
    Memory memory(World::cpu, sizes);
    for (const UnitPlan& unit_plan : plan.units) {
      Unit unit(unit_plan, plan, true, memory);
      std::fill_n(unit.master().data<float>(), unit.master().numel(), 123.0f);
      unit.initialize(s, seed);
      std::vector<bool> used(static_cast<size_t>(unit.master().numel()), false);
      for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit_plan.numel})) {
        std::vector<float>& whole = all[held.shard.name];
        const int64_t width = held.shard.columns.size();
        for (int64_t i = 0; i < held.data.numel(); i++) {
          const int64_t e = held.shard.elements.begin + i;
          float& value =
              whole[static_cast<size_t>(e / width * held.shard.cols() + held.shard.columns.begin + e % width)];
          const float here = held.data.data<float>()[i];
          if (!std::isnan(value)) {
            EXPECT_EQ(value, here) << held.shard.name;
          }
          value = here;
          used[static_cast<size_t>(held.data.data<float>() - unit.master().data<float>() + i)] = true;
        }
      }
      for (size_t i = 0; i < used.size() && padding; i++)
        if (!used[i]) padding->push_back(unit.master().data<float>()[i]);
    }
  }
  return all;
}

TEST(Initialization, DoesNotDependOnTheLayout) {
  Config config = small_config();
  config.model.layers = 4;
  const Values one = initialised(config, 1, 1);
  for (const auto& [name, values] : one)
    for (float v : values) ASSERT_FALSE(std::isnan(v)) << name;
  for (int tensor : {1, 3})
    for (int pipeline : {1, 2, 4})
      for (int data : {1, 2, 5}) {
        config.parallel.tensor_parallel_degree = tensor;
        config.parallel.pipeline_parallel_degree = pipeline;
        std::vector<float> padding;
        EXPECT_EQ(initialised(config, tensor * pipeline * data, 1, &padding), one)
            << tensor << " x " << pipeline << " x " << data;
        EXPECT_FALSE(padding.empty());
        for (float p : padding) ASSERT_EQ(p, 0) << "padding is 0, for ever";
      }
}

// Also of key-value heads that several ranks hold.
TEST(Initialization, OfHeadsDoesNotDependOnTheLayout) {
  for (Config config : small_models_of_heads()) {
    const int ranks = static_cast<int>(config.parallel.tensor_parallel_degree);
    const Values sharded = initialised(config, 2 * ranks, 1);
    config.parallel.tensor_parallel_degree = 1;
    EXPECT_EQ(sharded, initialised(config, 1, 1)) << config.model.kv_heads() << " heads on " << ranks;
  }
}

TEST(Initialization, IsWhatTheSpecSays) {
  Config config = small_config();
  config.model.hidden = 48;  // enough numbers to measure
  const Values values = initialised(config, 1, 5);
  for (const UnitSpec& unit : model_spec(config.model))
    for (const ParamSpec& param : unit.params) {
      const std::vector<float>& v = values.at(param.name);
      double sum = 0, squares = 0;
      for (float x : v) {
        sum += static_cast<double>(x);
        squares += static_cast<double>(x) * static_cast<double>(x);
        if (param.init_std == 0) {
          ASSERT_EQ(static_cast<double>(x), param.init_value) << param.name;
        }
      }
      if (param.init_std == 0) continue;
      // Five standard deviations of the estimates.
      const auto n = static_cast<double>(v.size());
      EXPECT_NEAR(sum / n, 0, 5 * param.init_std / std::sqrt(n)) << param.name;
      EXPECT_NEAR(std::sqrt(squares / n), param.init_std, 5 * param.init_std / std::sqrt(2 * n)) << param.name;
    }
}

TEST(Initialization, EveryParameterAndEverySeedDrawsOtherNumbers) {
  std::set<float> firsts;
  size_t drawn = 0;
  for (uint64_t seed : {1u, 2u, 3u}) {
    const Values values = initialised(small_config(), 1, seed);
    for (const UnitSpec& unit : model_spec(small_config().model))
      for (const ParamSpec& param : unit.params)
        if (param.init_std > 0) {
          drawn++;
          firsts.insert(values.at(param.name)[0] / static_cast<float>(param.init_std));
        }
  }
  EXPECT_EQ(firsts.size(), drawn);
}

}  // namespace
}  // namespace megalith
