// exp and sigmoid for vectors and for vectorized loops: no branch, no call, no table.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/loops/vectors_cpu.h"

namespace megalith::cpu {

// Within 2 units in the last place, for exp_low <= x <= exp_high; NaN for NaN.
// exp(x) = 2^n exp(r) with n the integer nearest to x log2(e), so |r| <= log(2)/2, and exp(r) by its Taylor series.
constexpr float exp_low = -87.3f, exp_high = 88.3f;
template <class Float, class Bits>
inline Float exp_within(Float x) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Float shifted = x * 1.44269504f + round;
  const Float n = shifted - round;
  const Float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) in two parts: n times the first is exact
  Float p = 1.0f / 5040 * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<Float>((std::bit_cast<Bits>(shifted) << 23) + 0x3f800000u);
}

// Returns 0 below exp_low, and infinity above exp_high.
template <class Float, class Bits>
inline Float exp_of(Float x) {
  // NaN fails all comparisons and stays.
  const Float y = exp_within<Float, Bits>(x < exp_low ? exp_low : x > exp_high ? exp_high : x);
  return x < exp_low ? 0.0f : x > exp_high ? std::bit_cast<float>(0x7f800000u) : y;
}
inline float exp(float x) { return exp_of<float, uint32_t>(x); }
inline Vector exp(Vector x) { return exp_of<Vector, BitVector>(x); }
// exp(x) for x <= 0, in fewer instructions.
inline Vector exp_of_nonpositive(Vector x) {
  const Vector y = exp_within<Vector, BitVector>(x < exp_low ? exp_low : x);
  return x < exp_low ? 0.0f : y;
}

// Returns 1 / (1 + exp(-x)), with a small relative error at both ends.
inline float sigmoid(float x) { return 1.0f / (1.0f + cpu::exp(-x)); }

}  // namespace megalith::cpu
