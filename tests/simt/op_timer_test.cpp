// Which launches are timed, on the simulated GPU, whose clock is the host's.
#include <gtest/gtest.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"

namespace megalith {
namespace {

TEST(SimtOpTimer, LaunchesAreTimedFromWhenItIsAskedFor) {
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  Arena arena(World::cuda, "test", 1 << 20);
  const Tensor x = arena.tensor(DType::f32, {1000}), y = arena.tensor(DType::f32, {1000});
  launch(s, Fill{.y = x, .value = 1});
  s.synchronize();
  EXPECT_EQ(s.log()[0].seconds, 0);
  s.time_ops();
  for (int round = 1; round <= 2; round++) {
    const double before = s.log()[0].seconds;
    for (int i = 0; i < 3; i++) launch(s, Fill{.y = x, .value = 1.0 * i});
    launch(s, Copy{.y = y, .x = x});
    EXPECT_EQ(s.log()[0].seconds, before) << "not before the host has waited";
    s.synchronize();
    EXPECT_GT(s.log()[0].seconds, before);
    EXPECT_GT(s.log()[1].seconds, 0);
  }
}

}  // namespace
}  // namespace megalith
