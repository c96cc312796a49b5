// Initial weights are a pure function of the seed: however many shards, the same numbers.
#include <cmath>
#include <map>
#include <set>

#include "tests/pure/small_run.h"
#include "tests/pure/testing.h"

namespace megalith {
namespace {

using Values = std::map<std::string, std::vector<float>>;

// Every shard initialised by itself, put together again; `padding` gets the elements that belong to no parameter.
Values initialised(const Config& config, int shards, uint64_t seed, std::vector<float>* padding = nullptr) {
  Values all;
  std::vector<std::vector<float>> flat(make_plan(config, shards, 0).units.size());
  for (int rank = 0; rank < shards; rank++) {
    const Plan plan = make_plan(config, shards, rank);
    Stream s(World::cpu);
    MemorySizes sizes;
    sizes.fill(int64_t{1} << 20);
    Memory memory(World::cpu, sizes);
    for (size_t u = 0; u < plan.units.size(); u++) {
      Unit unit(plan.units[u], DType::f32, true, memory);
      std::fill_n(unit.master().data<float>(), unit.master().numel(), 123.0f);
      unit.initialize(s, seed);
      const std::vector<float> shard = values_of(unit.master());
      flat[u].insert(flat[u].end(), shard.begin(), shard.end());
    }
  }
  const Plan plan = make_plan(config, shards, 0);
  for (size_t u = 0; u < plan.units.size(); u++) {
    std::vector<bool> used(flat[u].size(), false);
    for (const PlacedParam& param : plan.units[u].params) {
      const auto begin = static_cast<std::ptrdiff_t>(param.range().begin),
                 end = static_cast<std::ptrdiff_t>(param.range().end);
      all[param.spec.name] = {flat[u].begin() + begin, flat[u].begin() + end};
      std::fill(used.begin() + begin, used.begin() + end, true);
    }
    for (size_t i = 0; i < flat[u].size() && padding; i++)
      if (!used[i]) padding->push_back(flat[u][i]);
  }
  return all;
}

TEST(Initialization, DoesNotDependOnTheNumberOfShards) {
  const Values one = initialised(small_config(), 1, 1);
  for (int shards : {2, 3, 5, 8}) {
    std::vector<float> padding;
    EXPECT_EQ(initialised(small_config(), shards, 1, &padding), one) << shards << " shards";
    EXPECT_FALSE(padding.empty());
    for (float p : padding) ASSERT_EQ(p, 0) << "padding is 0, for ever";
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
