// The next unit's weights are on their way while a unit computes, whatever lies between.
#include "trainer/program/gathers.h"

#include <gtest/gtest.h>

#include "tests/pure/small_run.h"

namespace megalith {
namespace {

using Op = Instruction::Op;

// A digit is the unit that is used next, and a dot computes.
Program program_of(const std::string& text) {
  Program program;
  for (const char c : text)
    if (c == '.')
      program.push_back({.op = Op::forward});
    else
      program.push_back({.op = Op::await_gather, .unit = c - '0'});
  return program;
}
// g is the gather of a unit, and a awaits it.
std::string text_of(const Program& program) {
  std::string text;
  for (const Instruction& i : program)
    text += i.op == Op::forward ? "." : fmt::format("{}{} ", i.op == Op::gather ? 'g' : 'a', i.unit);
  return text;
}

TEST(Gathers, TheNextUnitIsOnItsWay) {
  Config config = small_config();
  config.parallel.sharding_strategy = ShardingStrategy::full_shard;
  Plan plan = make_plan(config, 2, 0);
  for (UnitPlan& unit : plan.units) unit.keep_gathered = false;
  plan.live_units = 2;
  ASSERT_GE(plan.units.size(), 4u);
  const auto gathered = [&](const char* uses) { return text_of(with_gathers(plan, program_of(uses), false)); };
  EXPECT_EQ(gathered("0.1..2.2.1.0."), "g0 a0 g1 .a1 g2 ..a2 ..g0 .a0 .") << "1 is there still";
  EXPECT_EQ(gathered("0.1.1.2."), "g0 a0 g1 .a1 g2 ..a2 .") << "from the first use of 1 on";
  plan.live_units = 3;
  EXPECT_EQ(gathered("0.1.2.3.3.2.1.0."), "g0 a0 g1 .a1 g2 .a2 g3 .a3 ...g0 .a0 .");
  plan.live_units = 2;
  plan.units[0].keep_gathered = true;
  EXPECT_EQ(gathered("0.1.2.3.3.2.1.0."), "g0 a0 g1 .a1 g2 .a2 g3 .a3 ..g1 .a1 ..");
}

// Whatever has memory of its own need not wait, unless it would come before what is needed earlier.
TEST(Gathers, WhatKeepsItsMemoryIsOnItsWayFromTheBeginning) {
  Config config = small_config();
  config.parallel.sharding_strategy = ShardingStrategy::shard_optimizer;
  Plan plan = make_plan(config, 2, 0);
  ASSERT_GE(plan.units.size(), 4u);
  const auto gathered = [&](const char* uses) { return text_of(with_gathers(plan, program_of(uses), false)); };
  EXPECT_EQ(gathered(".0.1.2.2.1."), "g0 g1 g2 .a0 .a1 .a2 ...");
  plan.units[1].keep_gathered = false;
  EXPECT_EQ(gathered(".0.1.2.2.1."), "g0 .a0 g1 .a1 g2 .a2 ...");
}

}  // namespace
}  // namespace megalith
