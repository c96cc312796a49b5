// Arenas, and the log of a stream.
#include <gtest/gtest.h>

#include "kernels/activation/gelu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/stream/arena.h"
#include "tensor_of.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

TEST(Arena, ScopesPeakAndLimit) {
  Arena arena(World::cpu, "scratch", 4096);
  const Tensor a = arena.tensor(DType::f32, {10});
  EXPECT_EQ(arena.used(), 256);
  {
    const auto scope = arena.scope();
    const Tensor b = arena.tensor(DType::bf16, {300});
    EXPECT_EQ(static_cast<char*>(b.raw()) - static_cast<char*>(a.raw()), 256);
    EXPECT_EQ(arena.used(), 256 + 768);
  }
  EXPECT_EQ(arena.used(), 256);
  EXPECT_EQ(arena.peak(), 1024);
  EXPECT_EQ(message_of([&] { arena.tensor(DType::f32, {1000}); }),
            "arena scratch: 4096 bytes wanted, 256 of 4096 used; the dry run planned less");

  Arena dry(World::dry, "scratch", 0);
  const Tensor huge = dry.tensor(DType::f32, {int64_t{1} << 40});
  EXPECT_NE(huge.raw(), nullptr);
  EXPECT_EQ(dry.peak(), int64_t{1} << 42);
}

TEST(Stream, LogSumsPerName) {
  Stream s(World::cpu);
  std::vector<float> x(6), y(6);
  for (int i = 0; i < 3; i++) launch(s, GeluForward{.y = of(y, {2, 3}), .x = of(x, {2, 3})});
  launch(s, Fill{.y = of(y, {6}), .value = 1});
  ASSERT_EQ(s.log().size(), 2u);
  EXPECT_EQ(s.log()[0].launches, 3);
  EXPECT_EQ(s.log()[0].bytes, 3 * 48);
  EXPECT_EQ(s.log()[1].bytes, 24);
  s.clear_log();
  EXPECT_TRUE(s.log().empty());
}

}  // namespace
}  // namespace megalith::test
