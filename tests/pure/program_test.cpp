// The laws of program.h, on the machine of program_machine.h. That it sees faults is shown by leaving out every single
// instruction in turn.
#include <gtest/gtest.h>

#include "trainer/parallel/program.h"

#include "tests/pure/program_machine.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

using test::Fault;
using test::Machine;
using test::Op;
using test::Programs;

struct Layout {
  std::string name;
  int ranks;
  std::function<void(Config&)> change;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

namespace program_layouts {

using Change = std::function<void(Config&)>;
using What = ActivationCheckpointing::Kind;
constexpr auto one_f_one_b = PipelineSchedule::one_f_one_b, gpipe = PipelineSchedule::gpipe,
               zb_h1 = PipelineSchedule::zb_h1;

Change pipeline(int64_t stages, int64_t virtual_stages, PipelineSchedule kind, int64_t active) {
  return [=](Config& c) {
    c.parallel.pipeline_parallel_degree = stages;
    c.parallel.virtual_stages = virtual_stages;
    c.parallel.pipeline_schedule = kind;
    c.parallel.active_microbatches = active;
  };
}
Change sharded(ShardingStrategy strategy, int64_t degree) {
  return [=](Config& c) {
    c.parallel.sharding_strategy = strategy;
    c.parallel.sharded_data_parallel_degree = degree;
  };
}
Change recompute(ActivationCheckpointing what, int64_t horizon = 0) {
  return [=](Config& c) {
    c.memory.activation_checkpointing = what;
    c.memory.offload_activations = horizon > 0;
    c.memory.activation_loading_horizon = std::max<int64_t>(1, horizon);
  };
}
Change in_bf16(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.precision.gradient_reduce = StorageType::bf16;
  };
}

Change by_muon(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.optimizer.algorithm = Algorithm::muon;
  };
}

// Those whose matrices go to owners.
std::vector<Layout> layouts_of_muon() {
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
std::vector<Layout> layouts_of_memory() {
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
std::vector<Layout> layouts_of_axes() {
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
Change adapters(const Change& change) {
  return [=](Config& c) {
    change(c);
    c.adapter.rank = 2;
  };
}
Change frozen(const std::string& what, const Change& change) {
  return [=](Config& c) {
    change(c);
    c.train.freeze = what;
  };
}
std::vector<Layout> layouts_of_what_is_trained() {
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
std::vector<Layout> layouts_in_halves() {
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

std::vector<Layout> layouts() {
  std::vector<Layout> all = layouts_of_memory();
  for (const Layout& layout : layouts_of_axes()) all.push_back(layout);
  for (const Layout& layout : layouts_of_what_is_trained()) all.push_back(layout);
  for (const Layout& layout : layouts_of_muon()) all.push_back(layout);
  for (const Layout& layout : layouts_in_halves()) all.push_back(layout);
  return all;
}

}  // namespace program_layouts

Config config_of(const Layout& layout) {
  Config config = small_config();
  config.model = {.layers = 6, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 10, .microbatch_size = 1};
  layout.change(config);
  return resolve(config);
}

class ProgramLaws : public testing::TestWithParam<Layout> {
 protected:
  ProgramLaws() {
    for (int r = 0; r < GetParam().ranks; r++) plans_.push_back(make_plan(config_of(GetParam()), GetParam().ranks, r));
  }
  Programs make(const std::function<Program(const Plan&)>& list) const {
    Programs all;
    for (const Plan& plan : plans_) all.push_back(list(plan));
    return all;
  }
  Fault fault_of(const Programs& programs, Machine::Mode mode, int64_t microbatches) const {
    return Machine(plans_, programs, mode, microbatches).run();
  }
  std::vector<Plan> plans_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, ProgramLaws, testing::ValuesIn(program_layouts::layouts()),
                         [](const auto& p) { return p.param.name; });

TEST_P(ProgramLaws, HoldInTraining) {
  EXPECT_EQ(fault_of(make(training_program), Machine::Mode::train, plans_[0].pipeline.microbatches), std::nullopt);
}

TEST_P(ProgramLaws, HoldInEvaluation) {
  for (int64_t microbatches : {0, 1, 2, 5, 9})
    EXPECT_EQ(fault_of(make([=](const Plan& p) { return evaluation_program(p, microbatches); }),
                       Machine::Mode::evaluate, microbatches),
              std::nullopt)
        << microbatches;
}

TEST_P(ProgramLaws, HoldForLogits) {
  EXPECT_EQ(fault_of(make(logits_program), Machine::Mode::logits, 1), std::nullopt);
}

TEST_P(ProgramLaws, NoInstructionCanBeLeftOut) {
  const Programs whole = make(training_program);
  for (size_t r : {size_t{0}, whole.size() - 1})
    for (size_t at = 0; at < whole[r].size(); at++) {
      Programs programs = whole;
      programs[r].erase(programs[r].begin() + static_cast<int64_t>(at));
      EXPECT_NE(fault_of(programs, Machine::Mode::train, plans_[0].pipeline.microbatches), std::nullopt)
          << "rank " << r << " without instruction " << at << ", of kind " << static_cast<int>(whole[r][at].op);
    }
}

TEST_P(ProgramLaws, ProductsWriteWhatWasNotZeroedAndNothingElse) {
  const Programs whole = make(training_program);
  for (size_t r : {size_t{0}, whole.size() - 1}) {
    std::set<std::pair<Instruction::Op, int32_t>> tried;  // the first of each kind and unit
    for (size_t at = 0; at < whole[r].size(); at++) {
      const Instruction& i = whole[r][at];
      const bool flagged =
          i.op == Op::zero || i.op == Op::head || i.op == Op::backward || i.op == Op::backward_weight;
      if (!flagged || !tried.emplace(i.op, i.unit).second) continue;
      Programs programs = whole;
      Instruction& other = programs[r][at];
      bool& flag = i.op == Op::zero ? other.all : other.add;
      flag = !flag;
      EXPECT_NE(fault_of(programs, Machine::Mode::train, plans_[0].pipeline.microbatches), std::nullopt)
          << "rank " << r << ", instruction " << at << ", of kind " << static_cast<int>(i.op);
    }
  }
}

// What bounds memory is read off the list.
TEST_P(ProgramLaws, TwoMicrobatchesOfAnEvaluationUseAllItsMemory) {
  for (const Plan& plan : plans_) {
    const Program training = training_program(plan), two = evaluation_program(plan, 2),
                  many = evaluation_program(plan, 11);
    const Needs of_two = needs_of(plan, {&two}), of_many = needs_of(plan, {&many}),
                of_all = needs_of(plan, {&training});
    EXPECT_EQ(of_two.residuals, of_many.residuals);
    EXPECT_EQ(of_two.weights.size(), of_many.weights.size());
    EXPECT_EQ(of_many.saved, 0);
    int64_t live = 0;
    for (size_t c = 0; c < plan.chunks.size(); c++)
      live += live_microbatches(plan.schedule, plan.pipeline.virtual_stages)[c] * plan.chunks[c].num_layers;
    if (plan.pipeline.in_halves()) continue;
    EXPECT_EQ(of_all.saved, plan.kept == Kept::input ? 0 : live) << "a layer keeps one for each microbatch alive";
  }
}

// The inputs of groups that wait for their backward pass, of a model of so many layers on one rank.
Needs needs_with(int64_t layers, ActivationCheckpointing what, int64_t horizon, int64_t microbatches) {
  Config config = config_of({"", 1, [](Config&) {}});
  config.model.layers = layers;
  config.batch.global_batch_size = microbatches;
  config.memory.activation_checkpointing = what;
  config.memory.offload_activations = horizon > 0;
  config.memory.activation_loading_horizon = std::max<int64_t>(1, horizon);
  const Plan plan = make_plan(config, 1, 0);
  const Program training = training_program(plan), evaluation = evaluation_program(plan, 2);
  return needs_of(plan, {&training, &evaluation});
}

TEST(Recomputation, KeepsTheInputsOfGroups) {
  using What = ActivationCheckpointing::Kind;
  const auto residuals = [](ActivationCheckpointing what) { return needs_with(12, what, 0, 2).residuals; };
  constexpr int64_t beside = 2;  // the output of the last layer, and the gradient
  EXPECT_EQ(residuals({What::none}), 12 + beside);
  EXPECT_EQ(residuals({What::selective}), 12 + beside);
  EXPECT_EQ(residuals({What::each}), 12 + beside);
  EXPECT_EQ(residuals({What::group, 4}), 3 + 3 + beside) << "and inside of a group";
  EXPECT_EQ(residuals({What::group, 5}), 3 + 4 + beside);
  EXPECT_EQ(residuals({What::contiguous}), 1 + 11 + beside);
}

TEST(Recomputation, OffloadBoundsTheDeviceByTheHorizon) {
  using What = ActivationCheckpointing::Kind;
  constexpr int64_t beside = 2;
  for (int64_t horizon : {1, 2, 5})
    for (int64_t layers : {12, 40})
      for (int64_t microbatches : {1, 3}) {
        const Needs each = needs_with(layers, {What::each}, horizon, microbatches);
        EXPECT_EQ(each.residuals, horizon + 1 + beside) << layers << " layers";
        EXPECT_EQ(each.host, layers - (horizon + 1)) << "what is used again before it is put out is not copied";
        const Needs groups = needs_with(layers, {What::group, 2}, horizon, microbatches);
        EXPECT_EQ(groups.residuals, std::min(horizon + 1, layers / 2) + 1 + beside);
      }
  EXPECT_EQ(needs_with(4, {What::each}, 5, 2).host, 0);
}

// Between the start of a copy and its use lie the backward passes of `horizon` other layers.
TEST(Recomputation, WhatIsOffloadedComesBackAheadOfItsUse) {
  for (int64_t horizon : {1, 2, 5}) {
    Config config = config_of({"", 1, [](Config&) {}});
    config.model.layers = 12;
    config.memory = {.activation_checkpointing = {ActivationCheckpointing::Kind::each},
                     .offload_activations = true,
                     .activation_loading_horizon = horizon};
    const Program list = training_program(make_plan(config, 1, 0));
    std::map<int32_t, int64_t> backwards;  // since the copy into a residual began
    int64_t copies = 0;
    for (const Instruction& i : list) {
      if (i.op == Op::fetch) backwards[i.y] = 0;
      if (i.op == Op::backward)
        for (auto& [residual, count] : backwards) count++;
      if (i.op != Op::await_transfer || !backwards.contains(i.y)) continue;
      EXPECT_EQ(backwards.at(i.y), horizon);
      backwards.erase(i.y);
      copies++;
    }
    EXPECT_EQ(copies, 10 * (12 - horizon - 1)) << "in each microbatch";
  }
}

}  // namespace
}  // namespace megalith
