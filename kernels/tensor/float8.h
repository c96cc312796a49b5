// The two types of 8 bits in which products are computed (Micikevicius et al., FP8 Formats for Deep Learning, arXiv
// 2209.05433): E4M3 for inputs and weights, E5M2 for gradients, whose range is wider. PyTorch calls them float8_e4m3fn
// and float8_e5m2.
#pragma once

#include <bit>
#include <cstdint>

namespace megalith {

// How a type of 8 bits spends them, and how it is converted to and from float. Conversion rounds to nearest, ties to
// even, and NaN stays NaN. `overflow` is what too large numbers become, and `nan` the NaN.
// Both directions are selects without branches, so that loops are vectorized, and compute with no subnormal float.
template <int mantissa, int bias, uint32_t overflow, uint32_t nan>
struct Float8 {
  static constexpr uint8_t bits_of(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), size = u & 0x7fffffffu;
    const uint32_t rounded = (size - rebias + half - 1 + ((size >> dropped) & 1u)) >> dropped;
    const uint32_t finite = rounded < overflow ? rounded : overflow;
    // Added to `raise`, a float's last bit is the unit of the subnormals; up to half of that unit rounds to 0.
    const uint32_t at_least = size > half_unit ? size : half_unit;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(at_least) + std::bit_cast<float>(raise)) - raise;
    const uint32_t number = size < smallest ? subnormal : finite;
    return static_cast<uint8_t>(((u >> 24) & 0x80u) | (size > 0x7f800000u ? nan : number));
  }
  static constexpr float value_of(uint8_t bits) {
    const uint32_t code = bits & 0x7fu, sign = (bits & 0x80u) << 24, size = code << dropped;
    const float subnormal = std::bit_cast<float>(size + smallest) - std::bit_cast<float>(smallest);
    const uint32_t number = code < 1u << mantissa ? std::bit_cast<uint32_t>(subnormal) : size + rebias;
    return std::bit_cast<float>(sign | (code > overflow ? 0x7fc00000u : code == infinity ? 0x7f800000u : number));
  }

 private:
  static constexpr int dropped = 23 - mantissa;  // bits of a float's mantissa
  static constexpr uint32_t half = 1u << (dropped - 1);
  static constexpr uint32_t rebias = uint32_t{127 - bias} << 23;  // difference between the two exponents' biases
  static constexpr uint32_t smallest = rebias + (1u << 23);       // the smallest normal number, as a float
  static constexpr uint32_t half_unit = smallest - (uint32_t{mantissa + 1} << 23);
  static constexpr uint32_t raise = half_unit + (24u << 23);
  static constexpr uint32_t infinity = mantissa == 2 ? overflow : 0x80u;  // E4M3 has none
};

// Up to 448. Larger numbers and infinity become 448.
struct float8_e4m3 : Float8<3, 7, 0x7eu, 0x7fu> {
  uint8_t bits = 0;
};
// Up to 57344, and infinity.
struct float8_e5m2 : Float8<2, 15, 0x7cu, 0x7fu> {
  uint8_t bits = 0;
};

}  // namespace megalith
