// The plan: who owns what, when. Ranges tile, batches are dealt out once, coordinates are a bijection, and what cannot
// be laid out is refused with the remedy.
#include "trainer/layout/plan.h"

#include <map>
#include <set>

#include "tests/message_of.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

TEST(Plan, ShardsTileEveryUnit) {
  for (int shards = 1; shards <= 9; shards++) {
    const Config config = small_config();
    const std::vector<UnitPlan> first = make_plan(config, shards, 0).units;
    std::vector<int64_t> next(first.size(), 0);
    for (int rank = 0; rank < shards; rank++) {
      const Plan plan = make_plan(config, shards, rank);
      ASSERT_EQ(plan.units.size(), first.size());
      for (size_t u = 0; u < plan.units.size(); u++) {
        const UnitPlan& unit = plan.units[u];
        EXPECT_EQ(unit.numel, first[u].numel);
        EXPECT_EQ(unit.shard.begin, next[u]) << unit.name << " of " << shards;
        EXPECT_EQ(unit.shard.size() * shards, unit.numel) << "all shards have the same size";
        EXPECT_EQ(unit.shard.begin % 64, 0) << "a shard starts on a cache line, also in bf16";
        next[u] = unit.shard.end;
      }
    }
    for (size_t u = 0; u < first.size(); u++) EXPECT_EQ(next[u], first[u].numel);
  }
}

TEST(Plan, ParametersDoNotOverlapAndDecayedOnesComeFirst) {
  for (int shards = 1; shards <= 9; shards++)
    for (const UnitPlan& unit : make_plan(small_config(), shards, shards - 1).units) {
      std::map<int64_t, int64_t> taken;  // begin -> end
      for (const PlacedParam& param : unit.params) {
        EXPECT_EQ(param.range().size(), param.shape.numel());
        EXPECT_EQ(param.offset % 64, 0) << param.spec.name;
        EXPECT_TRUE(taken.emplace(param.range().begin, param.range().end).second) << param.spec.name;
        if (param.spec.decay)
          EXPECT_LE(param.range().end, unit.decayed) << param.spec.name;
        else
          EXPECT_GE(param.range().begin, unit.decayed) << param.spec.name;
      }
      int64_t end = 0;
      for (const auto& [begin, its_end] : taken) {
        EXPECT_GE(begin, end);
        EXPECT_LT(begin - end, 64) << "padding between parameters is less than a cache line";
        end = its_end;
      }
      EXPECT_LE(end, unit.numel);
      EXPECT_LT(unit.numel - end, 64 * (shards + 1)) << "and less than one cache line a shard at the end";
      EXPECT_LE(unit.decayed, unit.numel);
    }
}

// What the ranks of one data-parallel copy answer for is every element of every parameter, once.
TEST(Plan, RanksAnswerForEveryElementOnce) {
  for (const Config& model : small_models_of_heads())
    for (int pipeline : {1, 2, 4})
      for (int shards = 1; shards <= 5; shards++) {
        Config config = model;
        config.model.layers = 4;
        const auto tensor = static_cast<int>(config.parallel.tensor_parallel_degree);
        config.parallel.pipeline_parallel_degree = pipeline;
        std::map<std::string, std::vector<int>> times;
        for (const UnitSpec& unit : model_spec(config.model))
          for (const ParamSpec& param : unit.params) times[param.name].assign(size_t(param.shape.numel()), 0);
        const int ranks = tensor * pipeline * shards;
        for (int rank = 0; rank < ranks; rank++) {
          const Plan plan = make_plan(config, ranks, rank);
          Memory memory(World::dry, {});
          for (const UnitPlan& unit_plan : plan.units) {
            const Unit unit(unit_plan, plan, true, memory);
            for (const PlacedParam& param : unit_plan.params)
              for (const Interval& counted : unit_plan.counted)
                for (const auto& [shard, local] : unit.shards_of(param, counted))
                  for (int64_t e = shard.elements.begin; e < shard.elements.end; e++) {
                    ASSERT_LE(local + shard.numel(), unit_plan.shard.size());
                    const int64_t width = shard.columns.size();
                    times[param.spec.name][size_t(e / width * shard.cols() + shard.columns.begin + e % width)]++;
                  }
          }
        }
        for (const auto& [name, counts] : times)
          for (size_t i = 0; i < counts.size(); i++)
            ASSERT_EQ(counts[i], 1) << name << "[" << i << "] of " << tensor << " x " << pipeline << " x " << shards;
      }
}

TEST(Plan, IntervalsAreDealtOutEvenly) {
  for (int64_t size : {0, 1, 2, 7, 64, 100})
    for (int64_t parts = 1; parts <= 9; parts++) {
      const Interval whole{5, 5 + size};
      int64_t next = 5, shortest = size, longest = 0;
      for (int64_t i = 0; i < parts; i++) {
        const Interval part = part_of(whole, i, parts);
        EXPECT_EQ(part.begin, next);
        next = part.end;
        shortest = std::min(shortest, part.size());
        longest = std::max(longest, part.size());
      }
      EXPECT_EQ(next, whole.end);
      EXPECT_LE(longest - shortest, 1);
    }
  EXPECT_EQ(intersect({2, 5}, {4, 9}), (Interval{4, 5}));
  EXPECT_EQ(intersect({2, 5}, {5, 9}), (Interval{0, 0}));
  EXPECT_EQ(intersect({7, 9}, {2, 3}), (Interval{0, 0}));
}

TEST(BatchPlan, EverySequenceOnceWhateverTheDivision) {
  for (int64_t batch = 1; batch <= 17; batch++)
    for (int64_t microbatch = 1; microbatch <= 5; microbatch++)
      for (int64_t ranks = 1; ranks <= 9; ranks++) {
        std::vector<int> seen(static_cast<size_t>(batch), 0);
        int64_t slots = 0, microbatches = 0;
        for (int64_t rank = 0; rank < ranks; rank++) {
          const BatchPlan plan{batch, microbatch, ranks, rank};
          microbatches = plan.num_microbatches();
          for (int64_t k = 0; k < microbatches; k++) {
            const Interval mine = plan.sequences(k);
            ASSERT_LE(0, mine.begin);
            ASSERT_LE(mine.begin, mine.end);
            ASSERT_LE(mine.end, batch);
            ASSERT_LE(mine.size(), microbatch);
            for (int64_t i = mine.begin; i < mine.end; i++) seen[static_cast<size_t>(i)]++;
            slots += microbatch;
          }
        }
        for (int count : seen) ASSERT_EQ(count, 1) << batch << " " << microbatch << " " << ranks;
        ASSERT_LT(slots - batch, microbatch * ranks) << "no more microbatches than needed";
        const double idle = static_cast<double>(slots - batch) / static_cast<double>(slots);
        ASSERT_NEAR((BatchPlan{batch, microbatch, ranks, 0}).idle(), idle, 1e-12);
      }
}

TEST(MeshShape, CoordinatesAreABijection) {
  for (int t : {1, 2, 3})
    for (int s : {1, 2, 3})
      for (int d : {1, 2, 3})
        for (int p : {1, 2, 3}) {
          const MeshShape mesh{.tensor = t, .shard = s, .data = d, .pipeline = p};
          std::set<std::vector<int>> all;
          std::map<std::pair<int, int>, std::set<int>> batch_ranks;  // by (pipeline, tensor)
          for (int rank = 0; rank < mesh.size(); rank++) {
            std::vector<int> at;
            for (Axis axis : all_axes) {
              at.push_back(mesh.coordinate(rank, axis));
              EXPECT_GE(at.back(), 0);
              EXPECT_LT(at.back(), mesh.extent(axis));
              // The group's members differ from its first in this coordinate only.
              const int first = rank - at.back() * mesh.stride(axis);
              for (Axis other : all_axes)
                EXPECT_EQ(mesh.coordinate(first, other), other == axis ? 0 : mesh.coordinate(rank, other));
            }
            EXPECT_EQ(((at[3] * d + at[2]) * s + at[1]) * t + at[0], rank);
            all.insert(at);
            batch_ranks[{at[3], at[0]}].insert(mesh.batch_rank(rank));
          }
          EXPECT_EQ(static_cast<int>(all.size()), t * s * d * p);
          for (const auto& [where, ranks] : batch_ranks) {
            EXPECT_EQ(static_cast<int>(ranks.size()), mesh.batch_ranks());
            EXPECT_EQ(*ranks.rbegin(), mesh.batch_ranks() - 1);
          }
        }
  const MeshShape mesh{.shard = 2, .data = 2};
  EXPECT_EQ(mesh.describe(3), "rank 3 (shard 1, data 1)");
  EXPECT_EQ(MeshShape{}.describe(0), "rank 0");
}

TEST(Plan, MeshFollowsTheStrategy) {
  Config config = small_config();
  EXPECT_EQ(mesh_shape(config, 6).shard, 6);
  EXPECT_EQ(mesh_shape(config, 6).data, 1);
  config.parallel.sharded_data_parallel_degree = 2;
  EXPECT_EQ(mesh_shape(config, 6).shard, 2);
  EXPECT_EQ(mesh_shape(config, 6).data, 3);
  config.parallel.sharded_data_parallel_degree = 0;
  config.parallel.sharding_strategy = ShardingStrategy::no_shard;
  EXPECT_EQ(mesh_shape(config, 6).shard, 1);
  EXPECT_EQ(mesh_shape(config, 6).data, 6);
}

TEST(Plan, RefusalsNameTheRemedy) {
  // A layer has 12 * 15 * 15 + 13 * 15 = 2895 parameters.
  Config config = small_config();
  config.parallel.max_live_parameters = 5789;
  for (int ranks : {2, 3, 8})
    EXPECT_EQ(message_of([&] { make_plan(config, ranks, 0); }),
              "parallel.max_live_parameters = 5789 is less than two layers of 2895 parameters, which are gathered at a "
              "time; set 5790 or more, or 0");
  EXPECT_NO_THROW(make_plan(config, 1, 0)) << "nothing is gathered";
  for (const auto& [parameters, live] : {std::pair{0, 2}, {5790, 2}, {8684, 2}, {8685, 3}}) {
    config.parallel.max_live_parameters = parameters;
    EXPECT_EQ(make_plan(config, 8, 0).live_units, live) << parameters;
  }
  config.parallel.max_live_parameters = 2895;
  config.parallel.pipeline_parallel_degree = 3;
  EXPECT_NO_THROW(make_plan(config, 6, 0)) << "a layer on each stage";
  config = small_config();
  config.model.vocab = 0;
  EXPECT_NE(message_of([&] { make_plan(config, 1, 0); }).find("set model.vocab or data.tokenizer"), std::string::npos);
}

// Whole units, whose sizes add up to the share but for half of one, and not all side by side.
// A step is a list, of which a batch of 10^9 sequences made one that no memory holds.
TEST(Plan, AStepOfAnyLengthIsNotPlanned) {
  Config config = small_config();
  config.batch.global_batch_size = 1000000000;
  config.batch.microbatch_size = 1;
  const std::string message = message_of([&] { make_plan(config, 2, 0); });
  EXPECT_EQ(message.find("a step of 500000000 microbatches is longer than the maximum for a plan, 65536; raise "), 0u)
      << message;
  config.batch.global_batch_size = 2 * 65536;
  EXPECT_EQ(make_plan(config, 2, 0).schedule.size(), 2u * 65536);
}

// Padding among the rest: what products write is a matrix of a layer or the token table, whole.
TEST(Plan, ProductsAndTheRestTileEveryUnit) {
  for (int shards : {1, 3})
    for (const UnitPlan& unit : make_plan(small_config(), shards, 0).units) {
      std::map<int64_t, int64_t> ends;  // by beginning
      for (const Interval& part : unit.outside_products) ends[part.begin] = part.end;
      for (const PlacedParam& param : unit.params)
        if (param.spec.multiplies) ends[param.range().begin] = param.range().end;
      int64_t end = 0;
      for (const auto& [begin, next] : ends) {
        EXPECT_EQ(begin, end) << unit.name;
        end = next;
      }
      EXPECT_EQ(end, unit.numel) << unit.name;
      const size_t products = unit.is_layer ? 4 : unit.name == "token embedding" ? 1 : 0;
      EXPECT_EQ(ends.size(), unit.outside_products.size() + products);
    }
}

// On GPUs a gibibyte of logits at a time, in equal chunks of whole tiles.
TEST(Plan, LogitsAreChunkedByTheMemoryOfTheDevice) {
  Config config = small_config();
  config.model.vocab = 50257;
  const auto rows = [&](Device device, ComputeType compute, int64_t tokens, int64_t chunks = 0, int64_t tensor = 1) {
    config.model.context = config.batch.sequence_length = 256;
    config.batch.microbatch_size = tokens / 256;
    config.run.device = device;
    config.precision.compute = compute;
    config.memory.lm_head_chunks = chunks;
    config.parallel.tensor_parallel_degree = tensor;
    return make_plan(config, static_cast<int>(tensor), 0).pass.head_rows;
  };
  using enum ComputeType;
  EXPECT_EQ(rows(Device::cpu, fp32, 16384), (1 << 25) / 50304);
  EXPECT_EQ(rows(Device::cpu, fp32, 256), 256);
  EXPECT_EQ(rows(Device::cuda, bf16, 2048), 2048) << "all of them";
  EXPECT_EQ(rows(Device::cuda, bf16, 16384), 8192) << "two chunks, of which 10672 rows would fit";
  EXPECT_EQ(rows(Device::cuda, bf16, 16384 + 256), 8448) << "8320 and up to a multiple of 256";
  EXPECT_EQ(rows(Device::cuda, bf16, 65536), 9472) << "seven chunks";
  EXPECT_EQ(rows(Device::cuda, fp32, 16384), 4096) << "twice the bytes";
  EXPECT_EQ(rows(Device::cuda, bf16, 16384, 0, 3), 16384) << "a third of the vocabulary";
  EXPECT_EQ(rows(Device::automatic, bf16, 16384), 8192) << "a plan is for GPUs unless it says otherwise";
  for (Device device : {Device::cpu, Device::cuda}) EXPECT_EQ(rows(device, bf16, 16384, 5), 3277);
}

TEST(Plan, OffloadsAShareOfTheOptimizer) {
  Config config = small_config();
  config.model.layers = 20;
  for (double share : {0.0, 0.1, 0.25, 0.3, 0.47, 0.5, 0.7, 0.9, 1.0}) {
    config.memory.offload_optimizer = share;
    const Plan plan = make_plan(config, 2, 1);
    int64_t all = 0, on_host = 0, largest = 0;
    size_t in_a_row = 0, most_in_a_row = 0;
    for (const UnitPlan& unit : plan.units) {
      all += unit.shard.size();
      on_host += unit.optimizer_on_host ? unit.shard.size() : 0;
      largest = std::max(largest, unit.shard.size());
      in_a_row = unit.optimizer_on_host ? in_a_row + 1 : 0;
      most_in_a_row = std::max(most_in_a_row, in_a_row);
    }
    EXPECT_NEAR(static_cast<double>(on_host), share * static_cast<double>(all), static_cast<double>(largest) / 2);
    if (share <= 0.5) {
      EXPECT_LE(most_in_a_row, 2u) << share;
    }
  }
}

}  // namespace
}  // namespace megalith
