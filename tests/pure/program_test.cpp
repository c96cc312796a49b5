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
using test::Programs;

struct Layout {
  std::string name;
  int ranks;
  std::function<void(Config&)> change;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

const std::vector<Layout>& layouts() {
  const auto pipeline = [](int64_t stages, int64_t virtual_stages, PipelineSchedule kind, int64_t active) {
    return [=](Config& c) {
      c.parallel.pipeline_parallel_degree = stages;
      c.parallel.virtual_stages = virtual_stages;
      c.parallel.pipeline_schedule = kind;
      c.parallel.active_microbatches = active;
    };
  };
  const auto sharded = [](ShardingStrategy strategy, int64_t degree) {
    return [=](Config& c) {
      c.parallel.sharding_strategy = strategy;
      c.parallel.sharded_data_parallel_degree = degree;
    };
  };
  constexpr auto one_f_one_b = PipelineSchedule::one_f_one_b, gpipe = PipelineSchedule::gpipe;
  static const std::vector<Layout> all = {
      {"alone", 1, [](Config&) {}},
      {"recompute", 1, [](Config& c) { c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each; }},
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
      {"pipeline", 2, pipeline(2, 1, one_f_one_b, 0)},
      {"pipeline_of_3_interleaved", 3, pipeline(3, 2, one_f_one_b, 0)},
      {"interleaved_with_few_active", 4, pipeline(2, 3, one_f_one_b, 2)},
      {"gpipe_in_waves", 4, pipeline(4, 1, gpipe, 3)},
      {"gpipe_interleaved_sharded", 4, pipeline(2, 2, gpipe, 0)},
      {"everything", 8,
       [=](Config& c) {
         pipeline(2, 3, one_f_one_b, 0)(c);
         c.parallel.tensor_parallel_degree = 2;
         c.parallel.sequence_parallel = true;
         c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
       }},
  };
  return all;
}

Config config_of(const Layout& layout) {
  Config config = small_config();
  config.model = {.layers = 6, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 10, .microbatch_size = 1};
  layout.change(config);
  return config;
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
INSTANTIATE_TEST_SUITE_P(Layouts, ProgramLaws, testing::ValuesIn(layouts()),
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

TEST_P(ProgramLaws, HoldInLayersAlone) {
  if (plans_[0].mesh.pipeline > 1) {
    EXPECT_THROW(layers_program(plans_[0]), Error);
    return;
  }
  EXPECT_EQ(fault_of(make(layers_program), Machine::Mode::layers, 1), std::nullopt);
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
    for (const Chunk& chunk : plan.chunks) live += chunk.live * chunk.num_layers;
    EXPECT_EQ(of_all.saved, plan.recompute ? 0 : live) << "a layer keeps one for each microbatch alive";
  }
}

}  // namespace
}  // namespace megalith
