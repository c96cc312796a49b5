// float16 against IEEE 754's definition of binary16: every number of it, and the floats about every place where
// rounding goes over from one to the next; and against the compiler's own, on floats of every kind.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/tensor/tensor.h"

namespace megalith::test {
namespace {

static_assert(float16(1.0f).bits == 0x3c00 && float16(-65504.0f).bits == 0xfbff);
static_assert(static_cast<float>(float16(0x1p-24f)) == 0x1p-24f);

float16 of_bits(int bits) {
  float16 h;
  h.bits = static_cast<uint16_t>(bits);
  return h;
}
// Number `bits` of those that are not negative; 0x7c00 is where infinity is rounded to, as if exponents went on.
double number(int bits) {
  const int exponent = bits >> 10, fraction = bits & 0x3ff;
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(0x400 + fraction, exponent - 25);
}
void expect_rounds(float from, int to) {
  ASSERT_EQ(float16(from).bits, to) << from;
  ASSERT_EQ(float16(-from).bits, to | 0x8000) << from;
}

TEST(Float16, EveryNumberIsWhatItIs) {
  for (int bits = 0; bits < 0x7c00; bits++) {
    const auto want = static_cast<float>(number(bits));
    ASSERT_EQ(static_cast<float>(of_bits(bits)), want) << bits;
    ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(of_bits(bits | 0x8000))), std::bit_cast<uint32_t>(-want));
    expect_rounds(want, bits);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(of_bits(0x7c00)), infinity);
  EXPECT_EQ(static_cast<float>(of_bits(0xfc00)), -infinity);
  expect_rounds(infinity, 0x7c00);
  for (int bits = 0x7c01; bits < 0x8000; bits++)
    for (int sign : {0, 0x8000}) {
      const auto f = static_cast<float>(of_bits(bits | sign));
      ASSERT_TRUE(std::isnan(f) && std::signbit(f) == (sign != 0)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(float16(f)))) << bits;
    }
}

// Conversion is monotonic, so that this is all floats. The last middle is 65520.
TEST(Float16, TiesGoToEvenAndTheRestToTheNearest) {
  for (int bits = 0; bits < 0x7c00; bits++) {
    const auto middle = static_cast<float>((number(bits) + number(bits + 1)) / 2);
    expect_rounds(middle, bits % 2 ? bits + 1 : bits);
    expect_rounds(std::nextafter(middle, 0.0f), bits);
    expect_rounds(std::nextafter(middle, 1e9f), bits + 1);
  }
  expect_rounds(65519.99f, 0x7bff);
  expect_rounds(65520, 0x7c00);
  expect_rounds(std::numeric_limits<float>::max(), 0x7c00);
  expect_rounds(std::numeric_limits<float>::denorm_min(), 0);
}

#if defined(__aarch64__)
using CompilersFloat16 = __fp16;  // GCC 12 has no _Float16 in C++ there
#else
using CompilersFloat16 = _Float16;
#endif

TEST(Float16, AgreesWithTheCompilers) {
  std::mt19937 random(1);
  for (int i = 0; i < 1 << 20; i++) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const auto want = static_cast<CompilersFloat16>(f);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(float16(f)))) << std::bit_cast<uint32_t>(f);
    } else {
      ASSERT_EQ(float16(f).bits, std::bit_cast<uint16_t>(want)) << f;
    }
  }
}

}  // namespace
}  // namespace megalith::test
