// exp and sigmoid for vectors and for vectorized loops: no branch, no call, no table.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/vectors_cpu.h"

namespace megalith::cpu {

// Within 2 units in the last place. Gives 0 below -87.3, infinity above 88.3, and NaN for NaN.
// exp(x) = 2^n exp(r) with n the integer nearest to x log2(e), so |r| <= log(2)/2, and exp(r) by its Taylor series.
template <class Float, class Bits>
inline Float exp_of(Float x) {
  constexpr float low = -87.3f, high = 88.3f;
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  // NaN fails both comparisons and stays.
  const Float c = x < low ? low : x > high ? high : x;
  const Float shifted = c * 1.44269504f + round;
  const Float n = shifted - round;
  const Float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) in two parts: n times the first is exact
  Float p = 1.0f / 5040 * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Float power = std::bit_cast<Float>((std::bit_cast<Bits>(shifted) << 23) + 0x3f800000u);
  const Float y = p * power;
  return x < low ? 0.0f : x > high ? std::bit_cast<float>(0x7f800000u) : y;
}
inline float exp(float x) { return exp_of<float, uint32_t>(x); }
inline Vector exp(Vector x) { return exp_of<Vector, BitVector>(x); }

// Returns 1 / (1 + exp(-x)), with a small relative error at both ends.
inline float sigmoid(float x) { return 1.0f / (1.0f + cpu::exp(-x)); }

}  // namespace megalith::cpu
