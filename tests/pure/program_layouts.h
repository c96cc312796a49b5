// The layouts whose programs are held to the laws of program.h.
#pragma once

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith::test {

struct Layout {
  std::string name;
  int ranks;
  std::function<void(Config&)> change;
};
inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

namespace program_layouts {

using Change = std::function<void(Config&)>;
using What = ActivationCheckpointing::Kind;
constexpr auto one_f_one_b = PipelineSchedule::one_f_one_b, gpipe = PipelineSchedule::gpipe,
               zb_h1 = PipelineSchedule::zb_h1, zb_v = PipelineSchedule::zb_v, v_half = PipelineSchedule::v_half;

inline Change pipeline(int64_t stages, int64_t virtual_stages, PipelineSchedule kind, int64_t active) {
  return [=](Config& c) {
    c.parallel.pipeline_parallel_degree = stages;
    c.parallel.virtual_stages = virtual_stages;
    c.parallel.pipeline_schedule = kind;
    c.parallel.active_microbatches = active;
  };
}
inline Change sharded(ShardingStrategy strategy, int64_t degree) {
  return [=](Config& c) {
    c.parallel.sharding_strategy = strategy;
    c.parallel.sharded_data_parallel_degree = degree;
  };
}
inline Change recompute(ActivationCheckpointing what, int64_t horizon = 0) {
  return [=](Config& c) {
    c.memory.activation_checkpointing = what;
    c.memory.offload_activations = horizon > 0;
    c.memory.activation_loading_horizon = std::max<int64_t>(1, horizon);
  };
}
inline Change in_bf16(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.precision.gradient_reduce = StorageType::bf16;
  };
}

inline Change by_muon(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.optimizer.algorithm = Algorithm::muon;
  };
}

// Those whose matrices go to owners.
inline std::vector<Layout> layouts_of_muon() {
  return {
      {"muon", 1, by_muon([](Config&) {})},
      {"muon_sharded", 4, by_muon(sharded(ShardingStrategy::full_shard, 2))},
      {"muon_on_the_host", 2, by_muon([](Config& c) { c.memory.offload_optimizer = 1; })},
      {"muon_half_on_the_host_in_a_pipeline", 4, by_muon([](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.memory.offload_optimizer = 0.5;
       })},
      {"muon_tensor", 4, by_muon([](Config& c) {
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
       })},
  };
}

// Those that differ in what is recomputed and what waits on the host.
inline std::vector<Layout> layouts_of_memory() {
  return {
      {"alone", 1, [](Config&) {}},
      {"each", 1, recompute({What::each})},
      {"selective", 2, recompute({What::selective})},
      {"groups_that_do_not_divide", 2, recompute({What::group, 4})},
      {"contiguous", 1, recompute({What::contiguous})},
      {"offload", 1, recompute({What::each}, 1)},
      {"offload_of_groups_sharded", 2, recompute({What::group, 2}, 1)},
      {"offload_far_ahead", 1, recompute({What::each}, 3)},
      {"optimizer_on_the_host", 1,
       [](Config& c) {
         c.model.vocab = 400;  // a table of several parts
         c.memory.offload_optimizer = 1;
       }},
      {"half_the_optimizer_on_the_host", 4,
       [](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.memory.offload_optimizer = 0.5;
       }},
      {"offload_in_a_pipeline", 3,
       [](Config& c) {
         pipeline(3, 2, one_f_one_b, 0)(c);
         recompute({What::each}, 1)(c);
       }},
      {"offload_in_waves", 4,
       [](Config& c) {
         pipeline(2, 1, gpipe, 4)(c);
         recompute({What::each}, 2)(c);
       }},
      {"contiguous_offload_in_a_pipeline", 2,
       [](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         recompute({What::contiguous}, 1)(c);
       }},
  };
}

// Those that differ in the axes, and in what goes over them.
inline std::vector<Layout> layouts_of_axes() {
  return {
      {"full_shard", 2, sharded(ShardingStrategy::full_shard, 0)},
      {"full_shard_of_4_live_3", 4,
       [](Config& c) {
         c.parallel.sharded_data_parallel_degree = 2;
         c.parallel.max_live_parameters = 3 * 1308;
       }},
      {"shard_grad_op", 2, sharded(ShardingStrategy::shard_grad_op, 0)},
      {"shard_optimizer_in_copies", 4, sharded(ShardingStrategy::shard_optimizer, 2)},
      {"replicate_below", 2, [](Config& c) { c.parallel.replicate_below = 200; }},
      {"no_shard", 3, sharded(ShardingStrategy::no_shard, 0)},
      {"no_shard_in_bf16", 3, in_bf16(sharded(ShardingStrategy::no_shard, 0))},
      {"nodes_in_bf16", 4, in_bf16([](Config& c) {
         sharded(ShardingStrategy::full_shard, 0)(c);
         c.parallel.ranks_per_node = 2;
       })},
      {"copies_in_bf16", 4, in_bf16(sharded(ShardingStrategy::full_shard, 2))},
      {"sequence", 4,
       [](Config& c) {
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
       }},
      {"sequence_in_copies", 4,
       [](Config& c) {
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.parallel.sharding_strategy = ShardingStrategy::no_shard;
       }},
      {"key_value_heads_on_several_ranks", 8,
       [](Config& c) {
         c.model.heads = 4;
         c.model.head_size = 3;
         c.model.key_value_heads = 2;
         c.parallel.tensor_parallel_degree = 4;
       }},
      {"pipeline", 2, pipeline(2, 1, one_f_one_b, 0)},
      {"pipeline_of_3_interleaved", 3, pipeline(3, 2, one_f_one_b, 0)},
      {"interleaved_with_few_active", 4, pipeline(2, 3, one_f_one_b, 2)},
      {"gpipe_in_waves", 4, pipeline(4, 1, gpipe, 3)},
      {"gpipe_interleaved_sharded", 4, pipeline(2, 2, gpipe, 0)},
      {"gpipe_interleaved_in_copies", 8,
       [](Config& c) {
         pipeline(2, 3, gpipe, 0)(c);
         sharded(ShardingStrategy::full_shard, 2)(c);
       }},
      {"interleaved_over_nodes_in_bf16", 8, in_bf16([](Config& c) {
         pipeline(2, 2, one_f_one_b, 0)(c);
         c.model.layers = 8;
         c.batch.global_batch_size = 8;
         c.parallel.ranks_per_node = 2;
       })},
      {"documents_apart_interleaved_in_groups", 4,
       [](Config& c) {
         pipeline(4, 1, one_f_one_b, 0)(c);
         c.data.isolate_documents = true;
         recompute({What::group, 2}, 1)(c);
       }},
      {"documents_apart_on_virtual_stages", 2,
       [](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.data.isolate_documents = true;
       }},
      {"everything", 8,
       [](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
       }},
  };
}

// Those that differ in what is trained.
inline Change adapters(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.adapter.rank = 2;
  };
}
inline Change frozen(const std::string& what, const Change& change) {
  return [=](Config& c) {
    change(c);
    c.train.freeze = what;
  };
}
inline std::vector<Layout> layouts_of_what_is_trained() {
  return {
      {"adapters", 1, adapters([](Config&) {})},
      {"adapters_full_shard", 2, adapters(sharded(ShardingStrategy::full_shard, 0))},
      {"adapters_in_copies", 4, adapters(in_bf16(sharded(ShardingStrategy::shard_grad_op, 2)))},
      {"adapters_on_the_host", 2, adapters([](Config& c) {
         recompute({What::each}, 1)(c);
         c.memory.offload_optimizer = 1;
         c.memory.offload_parameters = true;
       })},
      {"adapters_everything", 8, adapters([](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.memory.activation_checkpointing.kind = What::selective;
       })},
      {"frozen_embeddings_in_a_pipeline", 2, frozen("embeddings", pipeline(2, 1, one_f_one_b, 0))},
      {"frozen_parts_of_layers", 2, frozen("attention\nln_f\n", sharded(ShardingStrategy::full_shard, 0))},
      {"frozen_layers", 2, frozen("h.0\nh.3.*\nwte.weight\n", sharded(ShardingStrategy::full_shard, 0))},
      {"biases_alone", 2, frozen("*.weight", sharded(ShardingStrategy::full_shard, 0))},
  };
}

// Those whose backward passes have halves.
inline std::vector<Layout> layouts_in_halves() {
  const auto and_sharded = [](const Change& change, ShardingStrategy strategy) {
    return [=](Config& c) {
      change(c);
      sharded(strategy, 2)(c);
    };
  };
  const auto and_recompute = [](const Change& change, ActivationCheckpointing what, int64_t horizon = 0) {
    return [=](Config& c) {
      change(c);
      recompute(what, horizon)(c);
    };
  };
  const Change two = pipeline(2, 1, zb_h1, 0), chunks = pipeline(2, 3, zb_h1, 0);
  return {
      {"halves", 3, pipeline(3, 1, zb_h1, 0)},
      {"halves_interleaved", 2, chunks},
      {"halves_of_few_active", 2, pipeline(2, 3, zb_h1, 1)},
      {"halves_full_shard", 4, and_sharded(two, ShardingStrategy::full_shard)},
      {"halves_shard_grad_op", 8, and_sharded(chunks, ShardingStrategy::shard_grad_op)},
      {"halves_shard_optimizer_in_bf16", 8, in_bf16(and_sharded(chunks, ShardingStrategy::shard_optimizer))},
      {"halves_each", 3, and_recompute(pipeline(3, 2, zb_h1, 0), {What::each}, 1)},
      {"halves_selective", 4, and_recompute(and_sharded(chunks, ShardingStrategy::full_shard), {What::selective})},
      {"halves_of_groups", 2, and_recompute(two, {What::group, 2})},
      {"halves_of_groups_offloaded", 2, and_recompute(two, {What::contiguous}, 1)},
      {"halves_of_adapters", 4, adapters(and_sharded(two, ShardingStrategy::full_shard))},
      {"halves_of_some", 2, frozen("h.0\nh.3.*\nwte.weight\n", chunks)},
      {"halves_of_biases", 4, frozen("*.weight", and_sharded(chunks, ShardingStrategy::full_shard))},
      {"halves_by_muon", 4, by_muon(and_sharded(chunks, ShardingStrategy::full_shard))},
      {"halves_of_everything", 8,
       [](Config& c) {
         pipeline(2, 3, zb_h1, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.data.isolate_documents = true;
         c.memory.activation_checkpointing.kind = What::each;
       }},
  };
}

// Those whose chunks stand as a V.
inline std::vector<Layout> layouts_in_v() {
  const Change two = pipeline(2, 2, zb_v, 0), three = pipeline(3, 2, v_half, 0);
  const auto and_sharded = [](const Change& change, ShardingStrategy strategy) {
    return [=](Config& c) {
      change(c);
      sharded(strategy, 2)(c);
    };
  };
  return {
      {"v", 2, two},
      {"v_of_three", 3, pipeline(3, 2, zb_v, 4)},
      {"v_in_half", 3, three},
      {"v_full_shard", 4, and_sharded(two, ShardingStrategy::full_shard)},
      {"v_shard_optimizer_in_copies", 8, in_bf16(and_sharded(two, ShardingStrategy::shard_optimizer))},
      {"v_each_offloaded", 3,
       [=](Config& c) {
         three(c);
         recompute({What::each}, 1)(c);
       }},
      {"v_of_groups", 2,
       [=](Config& c) {
         two(c);
         recompute({What::group, 2}, 1)(c);
       }},
      {"v_with_frozen_embeddings", 2, frozen("embeddings", two)},
      {"v_with_ends_of_its_own", 2,
       [=](Config& c) {
         two(c);
         c.model.tied_head = false;
       }},
      {"v_by_muon_on_the_host", 2, by_muon([=](Config& c) {
         two(c);
         c.memory.offload_optimizer = 1;
       })},
      {"v_of_everything", 8,
       [=](Config& c) {
         two(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.data.isolate_documents = true;
         c.memory.activation_checkpointing.kind = What::selective;
       }},
  };
}

// Those whose layers compute in 8 bits, all or some.
inline Change in_fp8(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.precision.compute = ComputeType::bf16;
    c.precision.products = ProductType::fp8;
    c.model.hidden = 96;  // multiples of 16, also divided
    c.model.context = c.batch.sequence_length = 16;
  };
}
inline std::vector<Layout> layouts_in_8_bits() {
  return {
      {"fp8", 1, in_fp8([](Config& c) { c.precision.first_layers_in_bf16 = 1; })},
      {"fp8_full_shard", 2, in_fp8(sharded(ShardingStrategy::full_shard, 0))},
      {"fp8_shard_optimizer_in_copies", 4, in_fp8(in_bf16(sharded(ShardingStrategy::shard_optimizer, 2)))},
      {"fp8_halves", 4, in_fp8([](Config& c) {
         pipeline(2, 1, zb_h1, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.precision.last_layers_in_bf16 = 2;
       })},
      {"fp8_frozen_parts", 2, in_fp8(frozen("attention\nln_f\n", sharded(ShardingStrategy::full_shard, 0)))},
      {"fp8_adapters_on_the_host", 2, in_fp8(adapters([](Config& c) {
         recompute({What::each}, 1)(c);
         c.memory.offload_optimizer = 1;
         c.memory.offload_parameters = true;
       }))},
  };
}

inline std::vector<Layout> layouts() {
  std::vector<Layout> all = layouts_of_memory();
  for (const Layout& layout : layouts_of_axes()) all.push_back(layout);
  for (const Layout& layout : layouts_of_what_is_trained()) all.push_back(layout);
  for (const Layout& layout : layouts_of_muon()) all.push_back(layout);
  for (const Layout& layout : layouts_in_halves()) all.push_back(layout);
  for (const Layout& layout : layouts_in_v()) all.push_back(layout);
  for (const Layout& layout : layouts_in_8_bits()) all.push_back(layout);
  return all;
}

}  // namespace program_layouts

}  // namespace megalith::test
