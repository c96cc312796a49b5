// The laws of program.h, on the machine of program_machine.h. That it sees faults is shown by leaving out every single
// instruction in turn.
#include <gtest/gtest.h>

#include "trainer/program/program.h"

#include "tests/pure/program_layouts.h"
#include "tests/pure/program_machine.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

using test::Fault;
using test::Layout;
using test::Machine;
using test::Op;
using test::Programs;

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
INSTANTIATE_TEST_SUITE_P(Layouts, ProgramLaws, testing::ValuesIn(test::program_layouts::layouts()),
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
      const bool flagged = i.op == Op::zero || i.op == Op::head || i.op == Op::backward || i.op == Op::backward_weight;
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
