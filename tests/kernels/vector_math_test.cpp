// The elementary functions of the CPU's loops, against those of the C library.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kernels/loops/vector_math_cpu.h"
#include "tensor_of.h"

namespace megalith::test {
namespace {

TEST(VectorMath, Exp) {
  for (float x = -87.2f; x < 88.2f; x += 0.00713f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(cpu::exp(x)) / want, 1, 2.4e-7) << x;
  }
  EXPECT_EQ(cpu::exp(0), 1);
  EXPECT_EQ(cpu::exp(-100), 0);
  EXPECT_EQ(cpu::exp(-infinity), 0);
  EXPECT_EQ(cpu::exp(infinity), infinity);
  EXPECT_EQ(cpu::exp(89), infinity);
  EXPECT_TRUE(std::isnan(cpu::exp(nan)));
}

TEST(VectorMath, ExpOfNonpositiveHasTheBitsOfExp) {
  const auto both = [](float x) {
    return std::pair(cpu::exp_of_nonpositive(cpu::Vector{} + x)[0], cpu::exp(cpu::Vector{} + x)[0]);
  };
  for (float x = -90; x <= 0; x += 0.00713f) {
    const auto [fast, exact] = both(x);
    ASSERT_EQ(fast, exact) << x;
  }
  EXPECT_EQ(both(0).first, 1);
  EXPECT_EQ(both(-infinity).first, 0);
  EXPECT_TRUE(std::isnan(both(nan).first));
}

}  // namespace
}  // namespace megalith::test
