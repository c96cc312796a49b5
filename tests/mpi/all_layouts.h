// The table of layouts: every kind of parallelism, alone and together, each with some kind of memory.
#pragma once

#include <vector>

#include "tests/long_tests.h"
#include "tests/mpi/on_all_ranks.h"

namespace megalith {

// These may be recomputed and offloaded, which changes no bit.
inline std::vector<MemoryConfig> kinds_of_memory() {
  using Recompute = ActivationCheckpointing::Kind;
  return {
      {.activation_checkpointing = {Recompute::none}},
      {.activation_checkpointing = {Recompute::each}},
      {.activation_checkpointing = {Recompute::selective}},
      {.activation_checkpointing = {Recompute::group, 3}},
      {.activation_checkpointing = {Recompute::contiguous}},
      {.activation_checkpointing = {Recompute::each}, .offload_activations = true, .activation_loading_horizon = 1},
      {.activation_checkpointing = {Recompute::group, 2}, .offload_activations = true, .activation_loading_horizon = 2},
      {.activation_checkpointing = {}, .offload_optimizer = 1},
      {.activation_checkpointing = {Recompute::selective}, .offload_optimizer = 0.5},
      {.activation_checkpointing = {Recompute::each},
       .offload_activations = true,
       .offload_optimizer = 1,
       .offload_parameters = true}};
}

// All layouts of the model that this many ranks allow. Where a shard is a whole copy, shard_grad_op is no_shard, and
// the other two differ from it in when a layer is gathered and its gradient summed: by day the three take turns.
inline std::vector<Config> all_layouts(const Config& model, int ranks) {
  std::vector<Config> all;
  size_t n = 0, copies = 0;
  for (int tensor : {1, 2, 3, 6})
    for (int pipeline : {1, 2, 3, 4, 8}) {
      if (ranks % (tensor * pipeline) != 0) continue;
      const int data = ranks / tensor / pipeline;
      for (ShardingStrategy strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op,
                                        ShardingStrategy::shard_optimizer, ShardingStrategy::no_shard})
        for (int degree = 1; degree <= data; degree++) {
          if (data % degree != 0 || (strategy == ShardingStrategy::no_shard && degree > 1)) continue;
          Config c = model;
          c.parallel.tensor_parallel_degree = tensor;
          c.parallel.pipeline_parallel_degree = pipeline;
          c.parallel.sharding_strategy = strategy;
          c.parallel.sharded_data_parallel_degree = degree;
          c.parallel.sequence_parallel = n % 2;
          if (pipeline > 1 && pipeline <= 4 && n % 3 == 0) c.parallel.virtual_stages = 2;
          if (n % 4 == 1) c.parallel.pipeline_schedule = PipelineSchedule::gpipe;
          if (n % 4 == 2) c.parallel.pipeline_schedule = PipelineSchedule::zb_h1;
          if (n % 4 == 3 && c.parallel.virtual_stages == 2)
            c.parallel.pipeline_schedule = n % 8 == 3 ? PipelineSchedule::zb_v : PipelineSchedule::v_half;
          if (n % 5 == 2 && c.parallel.pipeline_schedule != PipelineSchedule::v_half)
            c.parallel.active_microbatches =
                c.parallel.pipeline_schedule == PipelineSchedule::zb_v ? c.parallel.pipeline_parallel_degree + 1 : 2;
          if (tensor > 1 && n % 3 == 1) c.parallel.tensor_pieces = 2;
          for (size_t kind = n; kind == n || !is_valid(c); kind++) {
            CHECK(kind < n + kinds_of_memory().size(), "no kind of memory makes this layout valid: {}", described(c));
            c.memory = kinds_of_memory()[kind % kinds_of_memory().size()];
          }
          if (degree > 2 && degree % 2 == 0) {
            c.parallel.hierarchical_allgather = true;
            c.parallel.ranks_per_node = int64_t{2} * tensor;
          }
          n++;
          if (strategy != ShardingStrategy::no_shard && degree == 1) {
            const size_t turn = copies / 3 + copies;  // another of the three for each mesh
            copies++;
            if (turn % static_cast<size_t>(taken("Layouts.StrategiesOverOneRank")) != 0) continue;
          }
          all.push_back(c);
        }
    }
  return all;
}

}  // namespace megalith
