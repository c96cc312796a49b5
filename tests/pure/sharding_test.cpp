#include <gtest/gtest.h>

#include "trainer/parallel/sharding.h"

#include "tests/pure/small_run.h"

namespace megalith {
namespace {

// A program may find a unit where another program has left it, and gather it elsewhere: it is there from then on.
TEST(Sharding, AUnitIsInTheSlotThatItWasGatheredIntoLast) {
  const Config config = small_config();
  const Plan plan = make_plan(config, 2, 0);
  Runtime runtime(World::dry, {}, Mesh::dry(plan.mesh, plan.rank));
  const size_t one = plan.chunks[0].unit(0), other = plan.chunks[0].unit(1);
  const int64_t numel = plan.units[one].numel;
  Needs slots;
  slots.weights = {{numel}, {numel}};
  Sharding sharding(plan, runtime, slots, false);
  const auto place = [&](size_t unit) { return sharding.weights(unit)[Param{0}]; };
  sharding.gather(one, 0);
  const void* first = place(one).raw();
  sharding.gather(one, 1);
  const void* second = place(one).raw();
  EXPECT_NE(first, second);
  sharding.gather(other, 0);
  EXPECT_EQ(place(other).raw(), first);
  EXPECT_EQ(place(one).raw(), second);
}

}  // namespace
}  // namespace megalith
