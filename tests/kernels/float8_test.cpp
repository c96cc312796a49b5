// The types of 8 bits against their definition (arXiv 2209.05433, section 3): every number, and the floats about every
// place where rounding goes over from one to the next. And casts (kernels/linear/fp8.h) against PyTorch's: all numbers
// of bf16 and a million floats, at ten scales.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "kernels/linear/fp8.h"
#include "kernels/tensor/finite.h"
#include "kernels/tensor/tensor.h"
#include "tests/python.h"

namespace megalith::test {
namespace {

static_assert(float8_e4m3::bits_of(448) == 0x7e && float8_e4m3::bits_of(1) == 0x38);
static_assert(float8_e5m2::bits_of(57344) == 0x7b && float8_e5m2::bits_of(1) == 0x3c);
static_assert(fp8_scale(448, 448) == 1 && fp8_scale(0, 448) == 1 && fp8_scale(1e-38f, 448) == 0x1p126f);

// Returns the value of a code without a sign, in a type with these sizes of the mantissa and the bias.
double number(int code, int mantissa, int bias) {
  const int exponent = code >> mantissa, fraction = code & ((1 << mantissa) - 1);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                       : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
}

// Conversion is monotonic, so that this is all floats up to the largest number.
template <class T>
void is_what_it_is(int mantissa, int bias, int largest) {
  const auto rounds = [](float from, int to) {
    ASSERT_EQ(T::bits_of(from), to) << from;
    ASSERT_EQ(T::bits_of(-from), to | 0x80) << from;
  };
  for (int code = 0; code <= largest; code++) {
    const auto here = static_cast<float>(number(code, mantissa, bias));
    ASSERT_EQ(T::value_of(static_cast<uint8_t>(code)), here);
    ASSERT_EQ(std::bit_cast<uint32_t>(T::value_of(static_cast<uint8_t>(code | 0x80))), std::bit_cast<uint32_t>(-here));
    rounds(here, code);
    if (code == largest) break;
    const auto middle = static_cast<float>((number(code, mantissa, bias) + number(code + 1, mantissa, bias)) / 2);
    rounds(middle, code % 2 ? code + 1 : code);
    rounds(std::nextafter(middle, 0.0f), code);
    rounds(std::nextafter(middle, 1e9f), code + 1);
  }
  EXPECT_TRUE(std::isnan(T::value_of(T::bits_of(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Float8, EveryNumberIsWhatItIsAndTheNearestIsTaken) {
  is_what_it_is<float8_e4m3>(3, 7, 0x7e);
  is_what_it_is<float8_e5m2>(2, 15, 0x7b);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float8_e4m3::bits_of(infinity), 0x7e);
  EXPECT_EQ(float8_e5m2::value_of(float8_e5m2::bits_of(-infinity)), -infinity);
}

TEST(Float8, WhatIsNotFiniteIsCounted) {
  std::vector<uint8_t> all(70000);
  for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<uint8_t>(i % 256);
  EXPECT_EQ(count_not_finite(all.data(), DType::e4m3, 256), 2);    // 0x7f and 0xff
  EXPECT_EQ(count_not_finite(all.data(), DType::e5m2, 1024), 32);  // 0x7c to 0x7f, and negative
  std::fill(all.begin(), all.end(), uint8_t{0x7f});
  EXPECT_EQ(count_not_finite(all.data(), DType::e4m3, 70000), 70000);
}

TEST(Float8, CastsAreThoseOfPyTorch) {
  const std::string python = python_with("torch, numpy");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON has no torch and numpy";
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 65536; bits++) x.push_back(std::bit_cast<float>(bits << 16));
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> exponent(-20, 17);
  while (x.size() < 65536 + 1'000'000 + 16)
    x.push_back(std::bit_cast<float>((static_cast<uint32_t>(generator()) & 0x807fffffu) | 0x3f800000u) *
                std::exp2(exponent(generator)));
  x.resize(x.size() / 16 * 16);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("megalith-float8-{}", getpid());
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const void* data, size_t bytes) {
    std::ofstream(folder / name, std::ios::binary).write(static_cast<const char*>(data), static_cast<long>(bytes));
  };
  write("x", x.data(), 4 * x.size());
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> amaxes;
  std::vector<uint8_t> ours;
  cpu::Queue queue;
  for (const DType type : {DType::e4m3, DType::e5m2})
    for (float amax : {448.0f, 57344.0f, 1.0f, 3.0f, 0.1f, 1e-4f, 1e-30f, 1000.0f, 1e20f, 0.0f}) {
      std::vector<uint8_t> y(x.size());
      float unscale = 0;
      alignas(16) float held = amax;
      cpu::run(queue, CastToFp8{.y = {y.data(), type, {n / 16, 16}},
                                .transposed = {},
                                .unscale = {&unscale, DType::f32, {1}},
                                .x = {x.data(), DType::f32, {n / 16, 16}},
                                .amax = {&held, DType::f32, {1}}});
      amaxes.push_back(amax);
      ours.insert(ours.end(), y.begin(), y.end());
    }
  write("amaxes", amaxes.data(), 4 * amaxes.size());
  write("ours", ours.data(), ours.size());
  std::ofstream(folder / "compare.py") << R"(import numpy as np, torch
x = torch.from_numpy(np.fromfile("x", np.float32))
amaxes = torch.from_numpy(np.fromfile("amaxes", np.float32))
ours = torch.from_numpy(np.fromfile("ours", np.uint8)).view(len(amaxes), -1)
different = 0
for i, amax in enumerate(amaxes):
    kind, largest = (torch.float8_e4m3fn, 448.0) if i < len(amaxes) // 2 else (torch.float8_e5m2, 57344.0)
    scale = torch.clamp(torch.tensor(largest) / amax, max=2.0 ** 126) if amax > 0 else torch.tensor(1.0)
    theirs = (x * scale).to(kind).view(torch.uint8)
    not_a_number = torch.isnan(theirs.view(kind).float()) & torch.isnan(ours[i].view(kind).float())
    wrong = torch.nonzero((theirs != ours[i]) & ~not_a_number)
    for at in wrong[:5, 0]:
        print(f"amax {amax}: {x[at]} is {ours[i][at]}, in PyTorch {theirs[at]}")
    different += len(wrong)
raise SystemExit(different > 0)
)";
  EXPECT_EQ(std::system(fmt::format("cd '{}' && '{}' compare.py", folder.string(), python).c_str()), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace megalith::test
